"""`python -m agent --config FILE`: the central agent."""

from agent.process import prepare, serve
from fogveil.participant import main

if __name__ == "__main__":
    main("agent", serve, prepare)

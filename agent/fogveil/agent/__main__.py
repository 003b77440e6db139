"""`python -m fogveil.agent --config FILE`: the central agent."""

from fogveil.agent.process import prepare, serve
from fogveil.agent.settings import AgentSettings
from fogveil.protocol.participant import main

if __name__ == "__main__":
    main("fogveil.agent", AgentSettings, serve, prepare)

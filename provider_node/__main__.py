"""`python -m provider_node --config FILE`: one provider."""

from fogveil.participant import main
from provider_node.process import serve

if __name__ == "__main__":
    main("provider_node", serve)

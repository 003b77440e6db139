"""`python -m fogveil.provider_node --config FILE`: one provider."""

from fogveil.protocol.participant import main
from fogveil.provider_node.process import serve
from fogveil.provider_node.settings import ProviderSettings

if __name__ == "__main__":
    main("fogveil.provider_node", ProviderSettings, serve)

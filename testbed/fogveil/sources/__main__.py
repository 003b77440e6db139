"""`python -m fogveil.sources --config FILE`: the IoT clusters."""

from fogveil.protocol.participant import main
from fogveil.sources.process import serve
from fogveil.sources.settings import SourcesSettings

if __name__ == "__main__":
    main("fogveil.sources", SourcesSettings, serve)

"""`python -m fogveil.clock --config FILE`: the clock."""

from fogveil.clock.process import serve
from fogveil.clock.settings import ClockSettings
from fogveil.protocol.participant import main

if __name__ == "__main__":
    main("fogveil.clock", ClockSettings, serve)

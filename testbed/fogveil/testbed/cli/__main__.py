"""`python -m fogveil.testbed.cli`: the same as `fogveil`."""

from fogveil.testbed.cli import main

if __name__ == "__main__":
    main()

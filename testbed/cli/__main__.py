"""`python -m testbed.cli`: the same as `fogveil`."""

from testbed.cli import main

if __name__ == "__main__":
    main()

"""`python -m cordwood.cli.demo`."""

import sys

from cordwood.cli.demo.story import run

if __name__ == "__main__":
    sys.exit(run())

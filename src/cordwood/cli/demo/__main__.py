"""`python -m cordwood.cli.demo`: all chapters."""

import sys

from cordwood.cli.demo.story import run
from cordwood.model.failure import ExitCode

if __name__ == "__main__":
    try:
        sys.exit(run())
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)

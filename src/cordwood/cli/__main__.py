"""`python -m cordwood.cli` is `cordwood`."""

from cordwood.cli import main

if __name__ == "__main__":
    main()

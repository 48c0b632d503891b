"""The one way in which commands take options, ask, and print: the terminal side of every command."""

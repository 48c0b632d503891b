"""`cordwood group`: one file per command; `table.py` is shared."""

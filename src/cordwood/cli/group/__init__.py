"""`cordwood group`: one file per command; `view.py`, `lag.py` and `table.py` are shared."""

"""`cordwood topic`: one file per command; `view.py` and `damage.py` are shared."""

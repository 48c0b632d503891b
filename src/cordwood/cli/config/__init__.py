"""`cordwood config`: one file per command; `changes.py` and `resource.py` are shared."""

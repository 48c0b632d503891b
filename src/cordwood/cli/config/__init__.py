"""`cordwood config`: one file per command; `resource.py` is shared."""

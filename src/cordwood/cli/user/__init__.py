"""`cordwood user`: one file per command; `password_source.py` is shared."""

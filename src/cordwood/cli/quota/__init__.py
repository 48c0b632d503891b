"""`cordwood quota`: one file per command; `named.py` has what they share: whom a quota is for."""

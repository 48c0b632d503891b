"""`cordwood token`: one file per command; `shown.py` has what they share."""

"""`cordwood config`: one file per command, and what they share in `changes.py`."""

"""`cordwood group`: one file per command, and what they share in `view.py`."""

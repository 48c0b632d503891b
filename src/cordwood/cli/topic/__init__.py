"""`cordwood topic`: one file per command; `cli/app.py` registers them, `administration/topic` has what they know."""

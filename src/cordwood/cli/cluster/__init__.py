"""`cordwood cluster`: `up.py` and `status.py` are the commands; a supervisor of processes does the work of `up`."""

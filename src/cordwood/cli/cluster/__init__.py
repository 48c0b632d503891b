"""`cordwood cluster`: one file per command; `carrying_out.py` is shared by those that move partitions."""

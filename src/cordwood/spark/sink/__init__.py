"""The writing half of format "cordwood": encodes rows as record batches, and decides once over all tasks of a
micro-batch."""

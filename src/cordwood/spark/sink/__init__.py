"""The writing half of format "cordwood": rows to record batches, and one decision over all tasks of a micro-batch."""

"""The reading half of format "cordwood": plans offsets and tasks of a query, and reads their rows."""

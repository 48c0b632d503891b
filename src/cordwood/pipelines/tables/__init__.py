"""Tables that a pipeline writes: batches of rows that become visible whole and once, through a table's own log."""

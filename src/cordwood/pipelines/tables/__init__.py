"""Tables of pipelines: batches of rows become visible whole and once, through a table's own log."""

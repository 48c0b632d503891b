"""One partition's log: append, read, roll, flush, recover, retain. Synchronous, over a small filesystem protocol."""

"""A whole broker without I/O of its own: requests, acks that wait, fetches that wait, timers."""

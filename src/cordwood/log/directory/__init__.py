"""The data directory: all logs of one broker, what else is in it, and what a start makes of it."""

"""The data directory: all logs of one broker, its other files, and the decisions of a start about both."""

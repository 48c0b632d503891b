"""The state of a pipeline on disk: its editions, how far each has come, and which one is live."""

"""Reads of one partition's log: by offset, by time, for damage; and work on records apart from the loop."""

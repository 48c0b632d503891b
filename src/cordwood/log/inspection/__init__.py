"""Reads the data directory of a stopped broker, and checks its files. Nothing here writes."""

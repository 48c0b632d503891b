"""Requests about records: Produce, Fetch, offsets of a log, producers."""

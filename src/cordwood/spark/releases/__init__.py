"""Releases of Spark: what each can do for a source and a sink in Python."""

"""Definitions of pipelines: names, formats, settings, and what can go wrong with them."""

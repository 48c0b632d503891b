"""Metrics and health of a running broker over HTTP."""

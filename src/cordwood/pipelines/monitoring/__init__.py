"""Metrics of pipelines, for Prometheus: made in the process that supervises them, from their events."""

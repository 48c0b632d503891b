"""Pipelines on Spark: run, quarantine, tables, replay and swap."""

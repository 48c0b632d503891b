"""Spark's Python workers: what a worker process keeps between tasks, and the query that it works for."""

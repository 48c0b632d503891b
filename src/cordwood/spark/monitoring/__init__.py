"""Metrics of queries and pipelines, for Prometheus: counted from events, beside the lag that brokers tell."""

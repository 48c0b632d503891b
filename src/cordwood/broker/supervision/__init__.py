"""Runs several brokers of one machine as processes: a local cluster, or the workers of one directory."""

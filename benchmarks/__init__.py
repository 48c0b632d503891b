"""Cordwood and Apache Kafka side by side on one machine: `python -m benchmarks [--quick] [names...]`."""

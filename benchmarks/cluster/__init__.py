"""Cordwood and Apache Kafka as clusters of three nodes, side by side on one machine."""

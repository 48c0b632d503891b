"""The partitions that this node hosts, their logs, and whoever waits for them."""

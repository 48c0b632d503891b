"""Plans of a rebalance: replicas, bytes, leaderships and traffic are evened out over the brokers."""

"""The metadata plane of a large cluster: a real etcd, the real store client and controller, simulated brokers."""

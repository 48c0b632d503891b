"""The replication between brokers, as rooms of a node: fetchers of followers, changes of in-sync sets."""

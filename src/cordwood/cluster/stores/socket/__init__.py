"""The stores' contract over a unix socket: brokers of one machine share the store of their supervisor."""

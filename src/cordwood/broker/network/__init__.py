"""Connections of a broker: to its clients, and to other brokers."""

"""Clients of the broker, well-behaved or not. Clients know the protocol, and not the checkers."""

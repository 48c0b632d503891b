"""Clients: what programs do to a broker, well-behaved or not. They know the protocol, and nothing of the checkers."""

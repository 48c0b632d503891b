"""Requests on their way to a handler, and the state of the connections that they come from."""

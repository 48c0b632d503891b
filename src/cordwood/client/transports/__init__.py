"""The ways in which bytes reach a broker: as they are, or over TLS."""

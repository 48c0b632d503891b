"""Brokers, leaders and replicas: their state with reasons, plans of moves, and the mover that carries plans out."""

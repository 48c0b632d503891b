"""Requests to coordinators: groups, positions, transactions, families."""

"""Judges of a run. They know the ledger and look into the node; workloads know nothing of them."""

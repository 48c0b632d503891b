"""The judges of a run. Checkers know the ledger and look into the node; workloads do not know the checkers."""

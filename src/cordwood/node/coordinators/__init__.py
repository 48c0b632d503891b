"""Coordinators of groups, transactions and families: state machines on the partitions of internal topics."""

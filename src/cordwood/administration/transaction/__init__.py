"""Transactions and families: their view, those that hang, and their abort."""

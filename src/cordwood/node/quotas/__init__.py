"""Quotas of clients: what each one has used, and how long it is held back."""

"""Rows of a batch: decoded, guarded, counted, quarantined, encoded."""

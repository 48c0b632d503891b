"""The ordering audit of a topic's whole history: order, duplicates, gaps and skew."""

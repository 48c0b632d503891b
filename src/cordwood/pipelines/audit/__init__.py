"""The ordering audit: what a topic's whole history says about order, duplicates, gaps and skew."""

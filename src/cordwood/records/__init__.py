"""Record batches: reading, building and validating them. No files, no network."""

"""Record batches: their bytes, reading and building them, and what a client may append. No files, no network."""

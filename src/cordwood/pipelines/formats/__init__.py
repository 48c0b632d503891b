"""Tables of all formats: which there are, where each is, and whether it can be written."""

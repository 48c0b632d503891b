"""State that groups of both protocols have: positions, kept bytes, fields of records."""

"""Settings: their tables, and changes of them."""

"""`cordwood inspect`: reads the data directory of a stopped broker, and never changes a byte of it."""

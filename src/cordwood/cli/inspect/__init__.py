"""`cordwood inspect`: a stopped log directory, looked at without changing a byte of it."""

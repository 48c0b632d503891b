"""`cordwood transaction`."""

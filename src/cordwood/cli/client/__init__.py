"""`cordwood client`: who uses the brokers."""

"""`cordwood client`: the clients of the brokers."""

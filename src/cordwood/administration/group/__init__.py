"""Groups: members, positions, lag, and plans that move positions."""

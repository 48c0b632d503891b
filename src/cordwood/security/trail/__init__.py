"""The security trail: who changed what, and who was refused, as events, counted repeats and lines."""

"""Offsets of logs that a data directory keeps beside them: in checkpoints, witnesses and notes of cuts."""

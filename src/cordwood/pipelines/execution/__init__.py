"""A pipeline at work: its query, its batches and outputs, and replays."""

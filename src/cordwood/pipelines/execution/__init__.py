"""A pipeline at work: its query, its batches and outputs, its process, and replays."""

"""What a node does by the clock and not for a request: retention, checkpoints, compaction, scrub, lag."""

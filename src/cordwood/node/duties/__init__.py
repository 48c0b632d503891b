"""The duties of a node by the clock, not for a request: retention, checkpoints, compaction, scrub, lag."""

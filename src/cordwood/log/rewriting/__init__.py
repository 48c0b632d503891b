"""New segments in the place of old ones: compaction, repair, and the swap."""

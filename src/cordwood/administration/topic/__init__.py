"""Topics: their view, promises and damage, and places in their partitions."""

"""Several brokers on one machine share one data directory: the homes of their partitions, and moves between them.

`cordwood serve` alone keeps partitions in the data directory itself. `cordwood serve --workers N` gives each broker a
home, `workers/<broker>`, and keeps the metadata where a single broker keeps it. A start with another number of workers
moves partitions between homes by rename (docs/decisions/workers.md).
"""

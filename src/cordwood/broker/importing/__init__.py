"""Takes the data directory of a broker that was alone into an empty cluster (docs/decisions/import.md).

Only metadata is copied: the directory stays at its path, and becomes that of the cluster's first broker.
"""

"""Takes the data directory of a broker that was alone into an empty cluster (docs/decisions/import.md).

Nothing is copied but metadata: the directory becomes that of the cluster's first broker, where it is.
"""

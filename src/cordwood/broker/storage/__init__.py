"""The storage of a broker: its data directories, its memory of the cluster, and the threads at the disk."""

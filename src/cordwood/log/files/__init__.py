"""Filesystems: the machine's disk, memory, and a disk that forgets, tears and fails."""

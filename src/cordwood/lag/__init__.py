"""How far behind a reader is, how fast it catches up, and when retention will take what it has not read.

Pure functions over plain values: no clock, no log, no group in here. Who calls brings segment boundaries, positions,
samples and the time.
"""

"""How far a reader is behind, how fast it catches up, and when retention will remove records that it has not read.

Pure functions over plain values: no clock, no log, no group. The caller brings segment boundaries, positions, samples
and the time.
"""

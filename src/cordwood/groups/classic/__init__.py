"""Groups of the classic protocol: members join, one of them assigns, all sync. One file per transition.

A transition gets the group, the event and the time, and leaves answers and records in an `Outbox`. Who is in the round
and what it waits for is soft state; what the log holds (generation, protocol, leader, members and their assignments)
becomes state by replay.
"""

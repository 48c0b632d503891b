"""Groups of the classic protocol: members join, one of them assigns, all sync.

One file per transition. A transition takes the group, the event and the time, and leaves answers and records in an
`Outbox`. The round (its members and their pending answers) is soft state. Generation, protocol, leader, members and
assignments are in the log and become state by replay.
"""

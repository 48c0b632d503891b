"""The bytes that members of groups have the coordinator keep: subscriptions, names, assignments.

One member may send a megabyte, and may be silent for half an hour before it is forgotten.
"""


class KeptBytes:
    """The sum of bytes over the groups of one shard."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

"""The throttle of replicas that are being moved: how fast they may be fetched, on the leader's and the follower's side.

Only replicas outside of the in-sync set are throttled, and only those that the topic's setting lists. A throttled
in-sync replica would hold up every ack, and would leave the in-sync set.
"""

from collections.abc import Collection

BURST_MS = 1_000
"""The milliseconds' worth of bytes that may be fetched ahead of the rate."""

EVERY_REPLICA = "*"


def is_listed(throttled_replicas: Collection[str], partition: int, broker_id: int) -> bool:
    """True if a setting `partition:broker,...` or `*` names the replica."""
    if not throttled_replicas:
        return False
    return EVERY_REPLICA in throttled_replicas or f"{partition}:{broker_id}" in throttled_replicas


class Throttle:
    """The bytes of all throttled replicas of one side. Bytes are counted when they are fetched: a fetch that exceeds
    the rate delays the next one."""

    __slots__ = ("_paid_ms",)

    def __init__(self) -> None:
        self._paid_ms = 0.0
        """The time at which the rate will have caught up with the counted bytes, on the boot clock."""

    def fetched(self, length: int, bytes_per_s: int, boot_ms: int) -> None:
        self._paid_ms = max(self._paid_ms, boot_ms) + length * 1000 / max(1, bytes_per_s)

    def wait_ms(self, boot_ms: int) -> int:
        """The wait before the next fetch; 0: none."""
        return max(0, round(self._paid_ms - boot_ms - BURST_MS))

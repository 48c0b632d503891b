"""Keeps the order of requests in each partition while they are prepared outside of the loop.

A request takes its place in the queue of every partition that it names, all at once. Its turn comes when its own work
is done and it is the first in all of these queues. So requests of different partitions pass each other, and requests of
one partition do not. Places are taken in the order of arrival, so no request waits for a later one.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable


class _Place:
    __slots__ = ("go", "partitions", "ready")

    def __init__(self, partitions: tuple[Hashable, ...], go: Callable[[], None]) -> None:
        self.partitions = partitions
        self.go = go
        self.ready = False


class PartitionOrder:
    def __init__(self) -> None:
        self.queues: dict[Hashable, deque[_Place]] = {}
        """Waiting requests by partition; partitions without waiting requests are left out."""

    def __bool__(self) -> bool:
        """True if any request waits."""
        return bool(self.queues)

    def busy(self, partitions: Iterable[Hashable]) -> bool:
        """True if a request that names these partitions has to wait for others."""
        return any(partition in self.queues for partition in partitions)

    def enter(self, partitions: Iterable[Hashable], go: Callable[[], None]) -> Callable[[], None]:
        """Takes a place. The caller calls the result once the request's own work is done; `go` is called in turn."""
        place = _Place(tuple(dict.fromkeys(partitions)), go)
        for partition in place.partitions:
            self.queues.setdefault(partition, deque()).append(place)

        def ready() -> None:
            assert not place.ready
            place.ready = True
            self._advance(place)

        return ready

    def _advance(self, place: _Place) -> None:
        """Calls `go` of this request if its turn has come, then of the requests that waited behind it."""
        pending = deque((place,))
        while pending:
            place = pending.popleft()
            if not place.ready or any(self.queues[each][0] is not place for each in place.partitions):
                continue
            place.ready = False
            place.go()
            for each in place.partitions:
                queue = self.queues[each]
                queue.popleft()
                if not queue:
                    del self.queues[each]
                elif queue[0].ready and queue[0] not in pending:
                    pending.append(queue[0])

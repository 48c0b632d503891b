"""Requests whose answers wait for an event, by connection: a later request of the connection must not wait behind
them.

A fetch of 16 bytes for each partition takes some 430 while it waits: 43 MB of requests took 1.2 GB. So the partitions
of all waiting fetches together are bounded. Beyond the bound those that have waited for longest are answered, with the
data at hand.
"""

from collections.abc import Iterator
from typing import Final, Protocol

from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.requests.early_answers import EarlyAnswers
from cordwood.wire.apis import ApiKey

MOST_PARTITIONS: Final = 500_000
"""The partitions of all parked requests: some 215 MB."""
HURRIED_PER_TURN: Final = 1_000
"""The partitions of requests that are answered in one turn to make room, unless a single request has more."""


class Parked(Protocol):
    """A request whose answer waits for an event."""

    def abandon(self) -> None: ...

    def hurry(self, now: Moment) -> None:
        """Answers now, with the data at hand."""


class ParkedRequests:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.by_connection: dict[int, dict[Parked, None]] = {}
        """Connections without parked requests are left out."""
        self.giving_way: dict[int, Parked] = {}
        """Parked requests that never hold up another request of their connection."""
        self._early_answers = EarlyAnswers()
        self._partitions: dict[Parked, int] = {}
        """The number of partitions of each parked request, the one parked first comes first."""
        self.partitions = 0
        """Their sum."""
        self._makes_room = False

    def park(self, connection_id: int, waiting: Parked, *, gives_way: bool = False, partitions: int = 1) -> None:
        """Parks a request. `gives_way`: any next request of the connection has the parked one answered first."""
        self._partitions[waiting] = partitions
        self.partitions += partitions
        if self.partitions > MOST_PARTITIONS and not self._makes_room:
            self._makes_room = True
            self._loop.in_turns.add_steps(self._make_room())
        self.by_connection.setdefault(connection_id, {})[waiting] = None
        if gives_way:
            self.giving_way[connection_id] = waiting
        self._loop.effects.wake()

    def _make_room(self) -> Iterator[None]:
        left = HURRIED_PER_TURN
        for parked, partitions in list(self._partitions.items()):
            if self.partitions <= MOST_PARTITIONS:
                break
            if parked in self._partitions:
                parked.hurry(self._loop.now)
                left -= partitions
            if left <= 0:
                left = HURRIED_PER_TURN
                yield
        self._makes_room = False

    def unpark(self, connection_id: int, waiting: Parked) -> None:
        self.partitions -= self._partitions.pop(waiting, 0)
        if self.giving_way.get(connection_id) is waiting:
            del self.giving_way[connection_id]
        waiting_there = self.by_connection.get(connection_id)
        if waiting_there is not None:
            waiting_there.pop(waiting, None)
            if not waiting_there:
                del self.by_connection[connection_id]

    def make_way(self, connection_id: int, api_key: int, now: Moment) -> None:
        """Answers waiting requests of the connection: answers leave in order, and the new request must not wait behind
        them.

        But a fetch waits behind a fetch: otherwise a reader that fetches ahead would be answered at once, again and
        again. A connection beyond its limit of early answers waits, as with Kafka (`EarlyAnswers`).
        """
        gives_way = self.giving_way.get(connection_id)
        if gives_way is not None:
            gives_way.hurry(now)
        waiting = self.by_connection.get(connection_id)
        if not waiting or api_key == ApiKey.FETCH or not self._early_answers.may_give(connection_id, now.boot_ms):
            return
        for parked in list(waiting):
            parked.hurry(now)

    def connection_closed(self, connection_id: int) -> None:
        """Drops the waiting requests of a closed connection: their answers would not be read."""
        for parked in list(self.by_connection.pop(connection_id, ())):
            parked.abandon()

    def hurry(self, connection_id: int, now: Moment) -> None:
        """Answers what waits on the connection."""
        for parked in list(self.by_connection.get(connection_id, ())):
            parked.hurry(now)

    def hurry_all(self, now: Moment) -> None:
        for parked in [parked for waiting in self.by_connection.values() for parked in waiting]:
            parked.hurry(now)

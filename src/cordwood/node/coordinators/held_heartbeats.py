"""Heartbeats that wait for news: members hear of a rebalance when it begins, not when their next heartbeat is due.

In the classic protocol a member learns of a new round by the answer to a heartbeat, and sends a heartbeat every few
seconds. This broker holds back the answer to a member without news until the group begins a round or the hold time is
over. So all members of a group join the round within milliseconds.

Only clients that send heartbeats beside their work are held: some other clients read no records before they have the
answer. Answers leave in the order of requests, so a held heartbeat is answered before the next request of its
connection is handled.
"""

from collections.abc import Callable
from itertools import chain
from typing import Final

from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.timers import Timer
from cordwood.node.requests.parked import ParkedRequests

PATIENT_SOFTWARE: Final = ("apache-kafka-java", "librdkafka", "confluent-kafka")
"""Prefixes of the software names of clients that send heartbeats beside their work (ApiVersions 3 and later).

librdkafka goes by its own name, or by that of a binding of its makers.
"""

Answer = Callable[[], None]
HasNews = Callable[[], bool]


class HeldHeartbeat:
    """A heartbeat that is answered once: by news of its group, by the next request of its connection, or in time."""

    def __init__(
        self,
        held: "HeldHeartbeats",
        of_groups: "HeldOfGroups",
        group_id: str,
        connection_id: int,
        has_news: HasNews,
        answer: Answer,
    ) -> None:
        self._held = held
        self.of_groups = of_groups
        self._answer = answer
        self.has_news = has_news
        self.group_id = group_id
        self.connection_id = connection_id
        self.timer: Timer | None = None

    def hurry(self, now: Moment) -> None:
        self.abandon()
        self._answer()

    def abandon(self) -> None:
        self._held.forget(self)


HeldOfGroups = dict[str, dict[HeldHeartbeat, None]]
"""Held heartbeats by group id, of the groups in one shard."""


class HeldHeartbeats:
    def __init__(self, loop: Loop, parked: ParkedRequests) -> None:
        self._loop = loop
        self._parked = parked
        self._patient: set[int] = set()
        """Connections whose heartbeats may be held."""
        self._stopped = False

    def introduced(self, connection_id: int, software: str) -> None:
        """Notes the software name that a client gave on its connection."""
        if software.startswith(PATIENT_SOFTWARE) and not self._stopped:
            self._patient.add(connection_id)

    def connection_closed(self, connection_id: int) -> None:
        self._patient.discard(connection_id)

    def stop(self) -> None:
        """Holds no further heartbeat."""
        self._stopped = True
        self._patient.clear()

    def is_patient(self, connection_id: int) -> bool:
        return connection_id in self._patient

    def hold(
        self,
        of_groups: HeldOfGroups,
        group_id: str,
        connection_id: int,
        until_ms: int,
        has_news: HasNews,
        answer: Answer,
    ) -> None:
        """Calls `answer` exactly once, no later than `until_ms`."""
        waiting = HeldHeartbeat(self, of_groups, group_id, connection_id, has_news, answer)
        waiting.timer = self._loop.timers.at(until_ms, waiting.hurry)
        of_groups.setdefault(group_id, {})[waiting] = None
        self._parked.park(connection_id, waiting, gives_way=True)

    @staticmethod
    def look(of_groups: HeldOfGroups, group_id: str, now: Moment) -> None:
        """Answers the held heartbeats of a group that have news now."""
        for waiting in list(of_groups.get(group_id, ())):
            if waiting.has_news():
                waiting.hurry(now)

    @staticmethod
    def answer_all(of_groups: HeldOfGroups, now: Moment) -> None:
        """Answers the held heartbeats of these groups: their coordinator is elsewhere from now on."""
        for waiting in list(chain.from_iterable(of_groups.values())):
            waiting.hurry(now)

    def forget(self, waiting: HeldHeartbeat) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        others = waiting.of_groups.get(waiting.group_id)
        if others is not None:
            others.pop(waiting, None)
            if not others:
                del waiting.of_groups[waiting.group_id]
        self._parked.unpark(waiting.connection_id, waiting)

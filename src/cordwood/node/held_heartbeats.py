"""Heartbeats that wait for news: members hear of a rebalance when it begins, not when their next heartbeat is due.

In the classic protocol a member learns by the answer to a heartbeat that its group begins a new round, and sends one
every few seconds. Here the answer to a member that has nothing to learn is held back for a while: until its group
begins a round, or the while is over. So all members of a group join the round within milliseconds.

Only on connections of clients that send heartbeats beside their work: some others read no records before they have the
answer. Answers leave in the order of requests, so a heartbeat is answered before anything else that its connection asks
for is looked at.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cordwood.node.timers import Timer

if TYPE_CHECKING:
    from cordwood.node.node import Node

PATIENT_SOFTWARE: Final = ("apache-kafka-java", "librdkafka", "confluent-kafka")
"""How the names begin by which such clients introduce themselves (ApiVersions 3 and later).

librdkafka goes by its own name, or by that of a binding of its makers.
"""

Answer = Callable[[], None]
HasNews = Callable[[], bool]


class HeldHeartbeat:
    """Answered once: by news of its group, by the next request of its connection, or when the while is over."""

    def __init__(
        self, held: "HeldHeartbeats", group_id: str, connection_id: int, has_news: HasNews, answer: Answer
    ) -> None:
        self._held = held
        self._answer = answer
        self.has_news = has_news
        self.group_id = group_id
        self.connection_id = connection_id
        self.timer: Timer | None = None

    def hurry(self, now_ms: int) -> None:
        self.abandon()
        self._answer()

    def abandon(self) -> None:
        self._held.forget(self)


class HeldHeartbeats:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._patient: set[int] = set()
        """Connections."""
        self._stopped = False
        self._of_group: dict[str, dict[HeldHeartbeat, None]] = {}
        self.of_connection: dict[int, HeldHeartbeat] = {}

    def introduced(self, connection_id: int, software: str) -> None:
        """A client says on a connection what it is."""
        if software.startswith(PATIENT_SOFTWARE) and not self._stopped:
            self._patient.add(connection_id)

    def connection_closed(self, connection_id: int) -> None:
        self._patient.discard(connection_id)

    def stop(self) -> None:
        """From now on nobody is kept waiting."""
        self._stopped = True
        self._patient.clear()

    def is_patient(self, connection_id: int) -> bool:
        return connection_id in self._patient

    def hold(self, group_id: str, connection_id: int, until_ms: int, has_news: HasNews, answer: Answer) -> None:
        """`answer` is called once, then at the latest."""
        waiting = HeldHeartbeat(self, group_id, connection_id, has_news, answer)
        waiting.timer = self._node.timers.at(until_ms, waiting.hurry)
        self._of_group.setdefault(group_id, {})[waiting] = None
        self.of_connection[connection_id] = waiting
        self._node.park(connection_id, waiting)

    def look(self, group_id: str, now_ms: int) -> None:
        """Something happened in a group: whom it concerns is answered."""
        for waiting in list(self._of_group.get(group_id, ())):
            if waiting.has_news():
                waiting.hurry(now_ms)

    def forget(self, waiting: HeldHeartbeat) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        self.of_connection.pop(waiting.connection_id, None)
        others = self._of_group.get(waiting.group_id)
        if others is not None:
            others.pop(waiting, None)
            if not others:
                del self._of_group[waiting.group_id]
        self._node.unpark(waiting.connection_id, waiting)

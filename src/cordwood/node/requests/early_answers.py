"""Limits how often a waiting fetch is answered early because another request of its connection has arrived.

Answers leave in the order of requests, so a request behind a waiting fetch would wait with it. Kafka lets that request
wait. A fetch that is answered early lets an idle consumer have its watermarks at once; but a client that answers each
empty fetch with another request and the next fetch would poll in a tight circle. So each connection has a hundred early
answers in a second. Beyond that limit its requests wait, as with Kafka.
"""

WINDOW_MS = 1000
MOST_IN_WINDOW = 100


class EarlyAnswers:
    """The early answers of one node. Remembers only connections that had an early answer in the last second or so."""

    def __init__(self) -> None:
        self._since_ms = 0
        self._given: dict[int, int] = {}

    def may_give(self, connection_id: int, boot_ms: int) -> bool:
        """True if a fetch of this connection may be answered early now; the early answer is then counted."""
        if not 0 <= boot_ms - self._since_ms < WINDOW_MS:
            self._since_ms = boot_ms
            self._given.clear()
        given = self._given.get(connection_id, 0)
        if given >= MOST_IN_WINDOW:
            return False
        self._given[connection_id] = given + 1
        return True

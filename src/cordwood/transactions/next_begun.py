"""Which clients of version 1 have begun another transaction, and were refused the first partitions that they wanted to
add to it.

EndTxn of version 1 names no transaction: its abort may mean the transaction that the coordinator has committed, or the
next one, of which the coordinator knows nothing because it refuses to add partitions: the last one is not complete yet,
or the partitions do not exist.
An abort of a committed transaction has to be refused, and librdkafka takes that refusal for fatal. So a refused request
to add partitions is kept in mind if it came on the connection on which the commit was asked for: no client adds
anything to a transaction after it has asked for its commit there, so it has begun the next one. A request on another
connection proves nothing: it may have been under way for long.
"""

from collections import OrderedDict
from typing import Final

MOST: Final = 10_000
"""The most transactional ids that are kept in mind. The abort of one that was dropped is refused."""


class NextBegun:
    """Belongs to one leadership: another leader may have ended transactions meanwhile."""

    def __init__(self) -> None:
        self._committed_on: OrderedDict[str, int] = OrderedDict()
        """The connection on which the commit of the last transaction was asked for, by transactional id."""
        self._begun: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, transactional_id: str) -> bool:
        """Whether the client has begun a transaction after the one that is decided, and added nothing to it."""
        return transactional_id in self._begun

    def decided(self, transactional_id: str, connection_id: int) -> None:
        """The client asked for the end of its transaction, and the coordinator has decided it."""
        self._begun.pop(transactional_id, None)
        self._committed_on[transactional_id] = connection_id
        self._committed_on.move_to_end(transactional_id)
        if len(self._committed_on) > MOST:
            self._committed_on.popitem(last=False)

    def refused_to_add(self, transactional_id: str, connection_id: int) -> None:
        """The client asked to add partitions, and none was added: its last transaction is not complete, or a partition
        does not exist."""
        if self._committed_on.get(transactional_id) == connection_id:
            self._begun[transactional_id] = None
            if len(self._begun) > MOST:
                self._begun.popitem(last=False)

    def added(self, transactional_id: str) -> None:
        """The coordinator knows the client's next transaction."""
        self._committed_on.pop(transactional_id, None)
        self._begun.pop(transactional_id, None)

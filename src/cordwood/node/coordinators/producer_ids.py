"""Hands out producer ids from blocks that the cluster reserved for this node: no two nodes give the same id.

A broker of a cluster reserves its first block as soon as it takes part, and the next one while half a block is left:
until these ids are used up, no new producer waits for a metadata store that does not answer.
"""

from collections import deque
from collections.abc import Callable

from cordwood.cluster.planner.registration import PRODUCER_IDS_PER_BLOCK
from cordwood.model.errors import ErrorCode
from cordwood.node.loop.loop import Loop

FEW_IDS = PRODUCER_IDS_PER_BLOCK // 2


class ProducerIds:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._ids: deque[int] = deque()
        self._waiting: deque[Callable[[int | ErrorCode], None]] = deque()
        self._asked = False
        """True if a block is being reserved."""

    def next(self, done: Callable[[int | ErrorCode], None]) -> None:
        """Calls back with an id that was never given before, or with an error if the cluster cannot reserve a block."""
        if self._ids:
            done(self._ids.popleft())
        else:
            self._waiting.append(done)
        self.reserve()

    def reserve(self) -> None:
        """Reserves a block if few ids are left. After a failure the next call tries again."""
        if len(self._ids) < FEW_IDS and not self._asked:
            self._asked = True
            wall_ms = self._loop.now.wall_ms
            self._loop.effects.metadata(lambda writer: writer.allocate_producer_ids(wall_ms), self._allocated)

    def _allocated(self, block: range | Exception) -> None:
        self._asked = False
        if isinstance(block, Exception):
            waiting, self._waiting = self._waiting, deque()
            for done in waiting:
                done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        self._ids.extend(block)
        while self._waiting and self._ids:
            self._waiting.popleft()(self._ids.popleft())
        self.reserve()

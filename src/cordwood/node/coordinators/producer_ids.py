"""Hands out producer ids from a block that the cluster reserved for this node: no two nodes give the same id."""

from collections.abc import Callable

from cordwood.model.errors import ErrorCode
from cordwood.node.loop import Loop


class ProducerIds:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._ids = range(0)
        self._waiting: list[Callable[[int | ErrorCode], None]] = []

    def next(self, done: Callable[[int | ErrorCode], None]) -> None:
        """Calls back with an id that was never given before, or with an error if the cluster cannot reserve a block."""
        if self._ids and not self._waiting:
            done(self._take())
            return
        self._waiting.append(done)
        if len(self._waiting) == 1:
            self._allocate()

    def _allocate(self) -> None:
        wall_ms = self._loop.now.wall_ms
        self._loop.effects.metadata(lambda writer: writer.allocate_producer_ids(wall_ms), self._allocated)

    def _take(self) -> int:
        producer_id, self._ids = self._ids[0], self._ids[1:]
        return producer_id

    def _allocated(self, block: range | Exception) -> None:
        if isinstance(block, Exception):
            waiting, self._waiting = self._waiting, []
            for done in waiting:
                done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        self._ids = block
        served, self._waiting = self._waiting[: len(block)], self._waiting[len(block) :]
        for done in served:
            done(self._take())
        if self._waiting:
            self._allocate()

"""Work that takes a while, one piece in each turn of the loop: others are served in between."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cordwood.node.node import Node

Work = Callable[[int], None]
"""Gets the time at which it is done."""


class InTurns:
    """Pieces are done in the order in which they came."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._waiting: deque[Work] = deque()

    def add(self, work: Work) -> None:
        self._waiting.append(work)
        if len(self._waiting) == 1:
            self._call_at(self._node.now_ms)

    def _call_at(self, time_ms: int) -> None:
        self._node.timers.at(time_ms, self._do_next)
        self._node.effects.wake()

    def _do_next(self, now_ms: int) -> None:
        self._waiting[0](now_ms)
        self._waiting.popleft()
        if self._waiting:
            # One deadline at a time: of several, all that came due during a long piece would be met in one turn.
            self._call_at(now_ms + 1)

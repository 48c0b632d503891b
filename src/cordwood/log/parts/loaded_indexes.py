"""The indexes of closed segments in memory, within a bound; the least recently used are dropped first.

The index of a full segment takes megabytes, and a back-filling reader walks through all segments. The indexes of open
segments always stay.
"""

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cordwood.log.parts.segment import Segment

DEFAULT_LIMIT_BYTES = 64 << 20
_FIXED_COST_BYTES = 1024


class LoadedIndexes:
    """The loaded indexes of all logs of a process, used from the loop and from threads that read cold data."""

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._costs: OrderedDict[Segment, int] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._costs)

    def used(self, segment: "Segment") -> None:
        """Notes a use of this segment's indexes in memory; drops others beyond the bound."""
        with self._lock:
            if segment in self._costs:
                self._costs.move_to_end(segment)
                return
            indexes = segment.indexes
            if indexes is None:
                return
            cost = indexes.offsets.size_bytes + indexes.times.size_bytes + _FIXED_COST_BYTES
            self._costs[segment] = cost
            self.used_bytes += cost
            while self.used_bytes > self.limit_bytes and len(self._costs) > 1:
                victim, victim_cost = self._costs.popitem(last=False)
                self.used_bytes -= victim_cost
                victim.indexes = None

    def forget(self, segment: "Segment") -> None:
        """Stops counting a segment that is gone or is being appended to."""
        with self._lock:
            self.used_bytes -= self._costs.pop(segment, 0)


SHARED = LoadedIndexes()

"""Signs of life: when somebody last joined or renewed a batch of a family.

Soft state. After a restart everybody has the full timeout again. A batch is renewed as a whole by any of its writers,
since those that are done write nothing more and still have to stay open until the decision. What nobody renews times
out: writers of an earlier batch that were left behind do, while the next batch goes on.
"""

from collections.abc import Iterable

Batch = tuple[str, int]
"""Name of the family and batch id."""


class Leases:
    def __init__(self) -> None:
        self._seen_ms: dict[Batch, int] = {}

    def joined(self, family: str, batch_id: int, now_ms: int) -> None:
        self._seen_ms[family, batch_id] = now_ms

    def renew(self, family: str, batch_id: int, now_ms: int) -> None:
        """Only a batch that somebody has joined can be renewed."""
        if (family, batch_id) in self._seen_ms:
            self._seen_ms[family, batch_id] = now_ms

    def seen_ms(self, family: str, batch_id: int, now_ms: int) -> int:
        """The last sign of life; now, if this is the first look at the batch since the start."""
        return self._seen_ms.setdefault((family, batch_id), now_ms)

    def batches(self) -> list[Batch]:
        return list(self._seen_ms)

    def forget(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self._seen_ms.pop(batch, None)

    def clock_jumped(self, by_ms: int) -> None:
        """Shifts all leases after the wall clock was set, so that each remaining wait stays as long as it was."""
        self._seen_ms = {batch: seen_ms + by_ms for batch, seen_ms in self._seen_ms.items()}

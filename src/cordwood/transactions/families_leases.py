"""Leases: when a writer last joined or renewed a batch of a family.

Leases are soft state: after a restart all have the full timeout again. Any writer renews its batch as a whole, since
finished writers write nothing more and still have to stay open until the decision. A batch without renewals times out,
as left-behind writers of an earlier batch do while the next batch goes on.
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
        """Renews a batch, if a writer has joined it."""
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

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

    def joined(self, family: str, batch_id: int, boot_ms: int) -> None:
        self._seen_ms[family, batch_id] = boot_ms

    def renew(self, family: str, batch_id: int, boot_ms: int) -> None:
        """Renews a batch, if a writer has joined it."""
        if (family, batch_id) in self._seen_ms:
            self._seen_ms[family, batch_id] = boot_ms

    def seen_ms(self, family: str, batch_id: int, boot_ms: int) -> int:
        """The last sign of life; now, if this is the first look at the batch since the start."""
        return self._seen_ms.setdefault((family, batch_id), boot_ms)

    def batches(self) -> list[Batch]:
        return list(self._seen_ms)

    def forget(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self._seen_ms.pop(batch, None)

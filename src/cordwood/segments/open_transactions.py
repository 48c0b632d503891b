"""The transactions that are open at a place in the log, and their ends: the source of the transaction index.

The object takes every transactional batch in order. Sequences and fencing are not checked here: a batch in the log was
accepted.
"""

from collections.abc import Mapping

from cordwood.segments.transaction_index import AbortedTransaction


class OpenTransactions:
    __slots__ = ("_first_offsets",)

    def __init__(self, first_offsets: Mapping[int, int] | None = None) -> None:
        """`first_offsets`: the first offset of each producer id's open transaction, from a snapshot."""
        # In the order of first offsets, as in the log: the first item is the oldest open transaction.
        self._first_offsets = dict(sorted((first_offsets or {}).items(), key=lambda item: item[1]))

    @property
    def first_offset(self) -> int | None:
        """The first offset of the oldest open transaction, which is the last stable offset."""
        return next(iter(self._first_offsets.values()), None)

    @property
    def first_offsets(self) -> dict[int, int]:
        return dict(self._first_offsets)

    def first_offset_of(self, producer_id: int) -> int | None:
        """The first offset of this producer's open transaction; None if it has none."""
        return self._first_offsets.get(producer_id)

    def data(self, producer_id: int, base_offset: int) -> None:
        """Takes a transactional batch with records of this producer."""
        self._first_offsets.setdefault(producer_id, base_offset)

    def marker(self, producer_id: int, marker_offset: int, *, committed: bool) -> AbortedTransaction | None:
        """Ends this producer's transaction. Returns the entry for the index if the transaction is aborted."""
        first_offset = self._first_offsets.pop(producer_id, None)
        if committed or first_offset is None:
            return None
        oldest = self.first_offset
        return AbortedTransaction(
            producer_id, first_offset, marker_offset, marker_offset + 1 if oldest is None else oldest
        )

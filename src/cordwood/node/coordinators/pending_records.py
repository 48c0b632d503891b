"""Records that transactions wrote to a coordinator's log, held back until the transactions end.

The log's order decides between records of one key, as for compaction: a record does not become state after a later
record of its key has.
"""

from collections.abc import Collection, Iterable, Iterator

_BYTES_OF_ONE = 256
"""The bytes of a value that take as much memory as a small record."""


class PendingRecords:
    """Held records by producer id and key: offset and value."""

    __slots__ = ("_by_producer", "weight")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        self.weight = 0
        """The memory that all held records take, in small records."""

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def add(self, producer_id: int, records: Iterable[tuple[int, bytes, bytes | None]]) -> None:
        held = self._by_producer.setdefault(producer_id, {})
        for offset, key, value in records:
            self.weight += _weight(value) - (_weight(held[key][1]) if key in held else 0)
            held[key] = (offset, value)

    def ended(self, producer_id: int, committed: bool) -> list[tuple[bytes, bytes | None]]:
        """Ends a transaction; returns the records that become state."""
        held = self._by_producer.pop(producer_id, {})
        self.weight -= sum(_weight(value) for _, value in held.values())
        if not committed:
            return []
        for key, (offset, _) in held.items():
            self.superseded(key, offset)
        return [(key, value) for key, (_, value) in held.items()]

    def superseded(self, key: bytes, offset: int) -> None:
        """Drops held records of this key below `offset`: the record at `offset` is state."""
        for held in self._by_producer.values():
            earlier = held.get(key)
            if earlier is not None and earlier[0] < offset:
                self.weight -= _weight(earlier[1])
                del held[key]

    def keys_of(self, producer_id: int) -> Collection[bytes]:
        """Keys of the records that one transaction holds."""
        return self._by_producer.get(producer_id, {}).keys()

    def moving_keys(self) -> Iterator[bytes]:
        """Keys that may change when some transaction ends."""
        for held in self._by_producer.values():
            yield from held


def _weight(value: bytes | None) -> int:
    return 1 + len(value or b"") // _BYTES_OF_ONE

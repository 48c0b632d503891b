"""The witness of a partition's transaction indexes: number of entries and checksum of each index, in one file.

A segment without aborted transactions has no `.txnindex`, so a lost index looks like no aborts, and Kafka's format has
no checksum. Readers of committed records would get aborted records, and compaction would keep them. An index that
contradicts its witness is rebuilt from the log. Entries behind those of the witness are newer: the log's recovery
judges them. In a directory without a witness, or with a damaged one, the indexes are believed: Kafka wrote them, or an
earlier version.
"""

import zlib
from collections.abc import Mapping
from typing import NamedTuple

from cordwood.segments.transaction_index import ENTRY_SIZE

FILE_NAME = "aborted-transactions-witness"


class Witnessed(NamedTuple):
    """The transaction index of one segment."""

    entries: int
    checksum: int

    def covers(self, data: bytes) -> bool:
        """True if the content of the index file begins with these entries."""
        size = self.entries * ENTRY_SIZE
        return len(data) >= size and zlib.crc32(data[:size]) == self.checksum

    def followed_by(self, data: bytes) -> "Witnessed":
        """The witness after these entries are appended to the file."""
        return Witnessed(self.entries + len(data) // ENTRY_SIZE, zlib.crc32(data, self.checksum))


def witness_of(data: bytes) -> Witnessed:
    """The witness of the content of an index file."""
    return Witnessed(len(data) // ENTRY_SIZE, zlib.crc32(data))


def encode_witness(by_base_offset: Mapping[int, Witnessed]) -> bytes:
    """The content of the witness file. Segments without aborts are left out."""
    lines = "".join(
        f"{base_offset} {entries} {checksum:08x}\n"
        for base_offset, (entries, checksum) in sorted(by_base_offset.items())
        if entries
    )
    return f"{lines}{zlib.crc32(lines.encode()):08x}\n".encode()


def decode_witness(data: bytes) -> dict[int, Witnessed]:
    """The witnesses by base offset; empty if the file is damaged."""
    text = data.decode("ascii", "replace")
    lines, _, last = text.removesuffix("\n").rpartition("\n")
    lines += "\n" if lines else ""
    if not text.endswith("\n") or last != f"{zlib.crc32(lines.encode()):08x}":
        return {}
    fields = (line.split(" ") for line in lines.splitlines())
    return {int(base_offset): Witnessed(int(entries), int(checksum, 16)) for base_offset, entries, checksum in fields}

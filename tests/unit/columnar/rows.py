"""Columns as rows, to compare them with what the slow reader of records says."""

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from cordwood.columnar.columns import Columns
from cordwood.columnar.decoding import Decoder
from cordwood.records.batch import Buffer, batches_in
from cordwood.records.records import records_in

EVERYTHING = 2**63 - 1
_LARGEST = 2**63 - 1


class Row(NamedTuple):
    offset: int
    timestamp_us: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


def rows(pieces: Iterable[Columns]) -> list[Row]:
    """One row per record, after Arrow itself has checked the arrays."""
    found: list[Row] = []
    for piece in pieces:
        arrays = (piece.offset, piece.timestamp, piece.timestamp_type, piece.key, piece.value, piece.headers)
        for array in arrays:
            if array is not None:
                array.validate(full=True)
                assert len(array) == piece.count
        nothing = [None] * piece.count
        found.extend(
            Row(offset, time, kind, key, value, headers and [(header["key"], header["value"]) for header in headers])
            for offset, time, kind, key, value, headers in zip(
                piece.offset.to_pylist(),
                piece.timestamp.cast(pa.int64()).to_pylist(),
                piece.timestamp_type.to_pylist(),
                nothing if piece.key is None else piece.key.to_pylist(),
                nothing if piece.value is None else piece.value.to_pylist(),
                nothing if piece.headers is None else piece.headers.to_pylist(),
                strict=True,
            )
        )
    return found


def decoded(
    records: Buffer,
    *,
    start_offset: int = 0,
    end_offset: int = EVERYTHING,
    aborted: list[tuple[int, int]] | None = None,
    decoder: Decoder | None = None,
) -> list[Row]:
    """All rows, headers included; read_committed if aborted transactions are told."""
    return rows(
        (decoder or Decoder(headers=True)).decode(
            records,
            start_offset=start_offset,
            end_offset=end_offset,
            aborted=aborted or (),
            read_committed=aborted is not None,
        )
    )


def expected(records: Buffer) -> list[Row]:
    """The same by the slow reader, one Python object per record."""
    found: list[Row] = []
    for position, header in batches_in(records):
        if not header.control:
            found.extend(
                Row(
                    record.offset,
                    min(max(record.timestamp_ms * 1000, -_LARGEST), _LARGEST),
                    int(header.log_append_time),
                    record.key,
                    record.value,
                    [(_as_java_reads(name), value) for name, value in record.headers],
                )
                for record in records_in(memoryview(records)[position : position + header.size])
            )
    return found


def _as_java_reads(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

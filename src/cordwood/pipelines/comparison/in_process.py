"""Compares small editions in this process: no Java is started for a few thousand rows.

The outcome equals that of `on_spark`, which compares larger editions on Spark.
"""

import base64
import json
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.comparison.on_spark import KINDS, Columns, Comparison, columns_of, record_sample, row_sample
from cordwood.pipelines.editions.positions import ahead, distance
from cordwood.pipelines.execution.reading_here import committed_records, log_ends, log_starts
from cordwood.pipelines.tables.staged import Snapshot

MAX_ROWS: Final = 200_000
"""The rows of both sides together: some hundred megabytes, and a few seconds."""
MAX_BYTES: Final = 256 << 20


class _Row(NamedTuple):
    key: Hashable | None
    """None for a row without a key, which is matched by its content."""
    content: Hashable


class _Nested(NamedTuple):
    """A list, a struct or a map, as JSON."""

    text: str


def tables_fit(live: Snapshot, fresh: Snapshot) -> bool:
    """True if two tables are small enough to compare here, in rows and bytes."""
    if live.rows + fresh.rows > MAX_ROWS:
        return False
    return sum(_size_bytes(each) for each in (live, fresh)) <= MAX_BYTES


def topics_fit(topics: Sequence[str], bootstrap: Bootstrap) -> bool:
    """True if two topics have few records. Their bytes are not known."""
    ends = log_ends(bootstrap, topics)
    return distance(ahead(ends, log_starts(bootstrap, topics))) <= MAX_ROWS


def compare_tables_here(table: str, key: Sequence[str], live: Snapshot, fresh: Snapshot, samples: int) -> Comparison:
    columns = columns_of(live, fresh)
    by = [name for name in key if name in columns.common]
    values = [name for name in columns.common if name not in by]
    sides = [_groups(_table_rows(each, by, values)) for each in (live, fresh)]
    counts, found = _differences(sides[0], sides[1], samples)

    def text(names: Sequence[str], cells: Any) -> str | None:
        return None if cells is None else _json(dict(zip(names, map(_shown, cells), strict=True)))

    shown = [row_sample(kind, text(by, key), text(values, one), text(values, two)) for kind, key, one, two in found]
    return Comparison(table, tuple(key), live.rows, fresh.rows, *counts, columns, shown)


def compare_topics_here(name: str, topics: tuple[str, str], bootstrap: Bootstrap, samples: int) -> Comparison:
    sides = [_groups(_records(topic, bootstrap)) for topic in topics]
    counts, found = _differences(sides[0], sides[1], samples)
    shown = [record_sample(*each) for each in found]
    totals = [sum(sum(each.values()) for each in side.values()) for side in sides]
    return Comparison(name, ("key",), totals[0], totals[1], *counts, Columns(), shown)


_Groups = Mapping[Hashable, Mapping[Any, int]]
"""By key, how often each content occurs."""


def _groups(rows: Iterable[_Row]) -> _Groups:
    """Groups rows by key. Rows without a key are grouped by their content."""
    groups: dict[Hashable, dict[Any, int]] = {}
    for key, content in rows:
        group = groups.setdefault((True, content) if key is None else (False, key), {})
        group[content] = group.get(content, 0) + 1
    return groups


_Difference = tuple[str, Any, Any, Any]
"""Kind, key, content in the live edition, content in the fresh edition."""


def _differences(live: _Groups, fresh: _Groups, samples: int) -> tuple[tuple[int, int, int], list[_Difference]]:
    counts: Counter[str] = Counter()
    found: dict[str, list[_Difference]] = {kind: [] for kind in KINDS}
    for name in {**live, **fresh}:
        one, two = live.get(name, {}), fresh.get(name, {})
        if one == two:
            continue
        assert isinstance(name, tuple)
        is_alone, key = name
        more, fewer = _beyond(one, two), _beyond(two, one)
        if is_alone or not (one and two):
            kind = "only live" if more else "only fresh"
            counts[kind] += sum((more or fewer).values())
        else:
            kind = "changed"
            counts[kind] += 1
        if len(found[kind]) < samples:
            found[kind].append((kind, None if is_alone else key, next(iter(more), None), next(iter(fewer), None)))
    numbers = (counts["only live"], counts["only fresh"], counts["changed"])
    return numbers, [each for kind in KINDS for each in found[kind]]


def _beyond(one: Mapping[Any, int], two: Mapping[Any, int]) -> dict[Any, int]:
    """The contents that `one` has more often than `two`, with the surplus."""
    return {content: count - two.get(content, 0) for content, count in one.items() if count > two.get(content, 0)}


def _size_bytes(snapshot: Snapshot) -> int:
    if snapshot.remote is None:
        return sum(Path(path).stat().st_size for path in snapshot.files)
    found = snapshot.remote.filesystem().get_file_info([str(name) for name in snapshot.files])
    return sum(each.size or 0 for each in found)


def _table_rows(snapshot: Snapshot, key: Sequence[str], values: Sequence[str]) -> Iterator[_Row]:
    import pyarrow.parquet as pq

    filesystem = None if snapshot.remote is None else snapshot.remote.filesystem()
    for number, path in enumerate(snapshot.files):
        constants = {} if snapshot.partitions is None else _row_of(snapshot.partitions, number)
        # A file that is older than a column lacks it.
        file = pq.ParquetFile(str(path), filesystem=filesystem)
        wanted = [name for name in (*key, *values) if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=wanted):
            cells = {name: _cells(batch.column(name)) for name in wanted}
            absent = [None] * batch.num_rows
            cells |= {name: [value] * batch.num_rows for name, value in constants.items()}
            keys = zip(*(cells.get(name, absent) for name in key), strict=True) if key else absent
            contents = zip(*(cells.get(name, absent) for name in values), strict=True) if values else [()] * len(absent)
            yield from map(_Row, keys, contents)


def _row_of(partitions: Any, number: int) -> dict[str, Hashable]:
    """The values of a file's partition."""
    return {name: _cells(partitions.column(name).slice(number, 1))[0] for name in partitions.column_names}


def _cells(column: Any) -> list[Hashable]:
    """Comparable values: nested ones become JSON, and all NaNs are equal."""
    import pyarrow as pa

    cells: list[Any] = column.to_pylist()
    if pa.types.is_nested(column.type):
        return [None if cell is None else _Nested(_json(cell)) for cell in cells]
    if pa.types.is_floating(column.type):
        return [cell if cell == cell else math.nan for cell in cells]
    return cells


def _records(topic: str, bootstrap: Bootstrap) -> Iterator[_Row]:
    for batch in committed_records(topic, bootstrap, ("key", "value")):
        for row in batch.to_pylist():
            yield _Row(_text(row["key"]), _text(row["value"]))


def _text(data: bytes | None) -> str | None:
    """Decodes UTF-8 text; other bytes become base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def _shown(cell: Any) -> Any:
    return json.loads(cell.text) if isinstance(cell, _Nested) else cell


def _json(values: Any) -> str:
    return json.dumps(values, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)

"""Small editions side by side, in this process: no Java is started for a few thousand rows.

The outcome is that of `comparing`, which does the same on Spark for what is larger.
"""

import base64
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from cordwood.pipelines.comparing import KINDS, Columns, Comparison, columns_of, record_sample, row_sample
from cordwood.pipelines.log_ends import log_ends, log_starts
from cordwood.pipelines.positions import ahead, distance
from cordwood.pipelines.tables.staged import Snapshot

MAX_ROWS: Final = 200_000
"""Of both sides together: some hundred megabytes, and a few seconds."""
MAX_BYTES: Final = 256 << 20


class _Row(NamedTuple):
    key: str | None
    """None: it stands for itself."""
    text: str | None


def tables_fit(live: Snapshot, fresh: Snapshot) -> bool:
    """Whether two tables are small, and on a file system that this process can read."""
    if live.rows + fresh.rows > MAX_ROWS or live.remote is not None or fresh.remote is not None:
        return False
    files = [Path(path) for path in (*live.files, *fresh.files)]
    return sum(path.stat().st_size for path in files) <= MAX_BYTES


def topics_fit(topics: Sequence[str], bootstrap_servers: str) -> bool:
    """Whether two topics have few records. Their bytes are not known."""
    ends = log_ends(bootstrap_servers, topics)
    return distance(ahead(ends, log_starts(bootstrap_servers, topics))) <= MAX_ROWS


def compare_tables_here(table: str, key: Sequence[str], live: Snapshot, fresh: Snapshot, samples: int) -> Comparison:
    columns = columns_of(live, fresh)
    by = [name for name in key if name in columns.common]
    values = [name for name in columns.common if name not in by]
    sides = [_groups(_table_rows(each, by, values)) for each in (live, fresh)]
    counts, found = _differences(sides[0], sides[1], samples)
    shown = [row_sample(*each) for each in found]
    return Comparison(table, tuple(key), live.rows, fresh.rows, *counts, columns, shown)


def compare_topics_here(name: str, topics: tuple[str, str], bootstrap_servers: str, samples: int) -> Comparison:
    sides = [_groups(_records(topic, bootstrap_servers)) for topic in topics]
    counts, found = _differences(sides[0], sides[1], samples)
    shown = [record_sample(*each) for each in found]
    totals = [sum(each.total() for each in side.values()) for side in sides]
    return Comparison(name, ("key",), totals[0], totals[1], *counts, Columns(), shown)


_Groups = Mapping[Hashable, Counter[str | None]]


def _groups(rows: Iterable[_Row]) -> _Groups:
    """The rows of each key. A row without a key is a group of its own, with those that say the same."""
    groups: dict[Hashable, Counter[str | None]] = {}
    for row in rows:
        name: Hashable = (True, row.text) if row.key is None else (False, row.key)
        groups.setdefault(name, Counter())[row.text] += 1
    return groups


def _differences(
    live: _Groups, fresh: _Groups, samples: int
) -> tuple[tuple[int, int, int], list[tuple[str, str | None, str | None, str | None]]]:
    counts: Counter[str] = Counter()
    found: dict[str, list[tuple[str, str | None, str | None, str | None]]] = {kind: [] for kind in KINDS}
    for name in {**live, **fresh}:
        one, two = live.get(name, Counter()), fresh.get(name, Counter())
        if one == two:
            continue
        assert isinstance(name, tuple)
        is_alone, key = name
        more, fewer = one - two, two - one
        if is_alone or not (one and two):
            kind = "only live" if more else "only fresh"
            counts[kind] += (more or fewer).total()
        else:
            kind = "changed"
            counts[kind] += 1
        if len(found[kind]) < samples:
            found[kind].append((kind, None if is_alone else key, next(iter(more), None), next(iter(fewer), None)))
    numbers = (counts["only live"], counts["only fresh"], counts["changed"])
    return numbers, [each for kind in KINDS for each in found[kind]]


def _table_rows(snapshot: Snapshot, key: Sequence[str], values: Sequence[str]) -> Iterator[_Row]:
    import pyarrow.parquet as pq

    for path in snapshot.files:
        # A file that is older than a column does not have it.
        file = pq.ParquetFile(path)
        wanted = [name for name in (*key, *values) if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=wanted):
            for row in batch.to_pylist():
                text = _json({name: row.get(name) for name in values})
                yield _Row(_json({name: row.get(name) for name in key}) if key else None, text)


def _records(topic: str, bootstrap_servers: str) -> Iterator[_Row]:
    import pyarrow as pa

    from cordwood.spark.source.batch_planner import plan_batch
    from cordwood.spark.source.options import read_options
    from cordwood.spark.source.pushdown import PushedFilters
    from cordwood.spark.source.range_reading import RangeReader
    from cordwood.spark.source.reading import ReadTask, TaskReader

    given = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": topic,
    }
    options = read_options(given, streaming=False)
    planned = plan_batch(options, PushedFilters())
    reader = TaskReader(options, pa.schema([("key", pa.binary()), ("value", pa.binary())]))
    for batch in RangeReader(reader, ReadTask(tuple(planned.ranges))).read():
        for row in batch.to_pylist():
            yield _Row(_text(row["key"]), _text(row["value"]))


def _text(data: bytes | None) -> str | None:
    """As it is where it is text, else in base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)

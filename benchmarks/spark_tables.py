"""Scenarios of `python -m benchmarks.spark pipelines`: tables, beside plain queries that write the same rows.

An append table is compared with Spark's own file sink, which writes Parquet and no table, and with `deltalake` in a
foreachBatch. A table with a key is compared with `deltalake`'s merge in a foreachBatch. `large` and `spread` begin with
millions of rows in the table, whose keys a batch meets next to each other, or all over it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from deltalake import write_deltalake

from benchmarks.figures import Target
from benchmarks.spark_pipelines import PIPELINE, Bench, Case, measures_of
from benchmarks.spark_plain_query import SCHEMA
from benchmarks.spark_runs import Timeline, run_timed

APPEND = Target(1.4, at_least=False)
UPSERT = Target(1.0, at_least=False)
FEW, NEW, NEAR, SPREAD = "placed % 1000", "placed", "seeded / 2 + placed % 1000", "placed % 1000 * (seeded / 1000)"
_SEED_STEP = 1_000_000
_WARMING = 1000

_FUNCTION = PIPELINE.replace("* 1.19)\n", '* 1.19).withColumn("k", F.expr("{key}"))\n')


def append(bench: Bench) -> None:
    """Rows that are only added."""
    read, rows = bench.orders(bench.scale.rows), bench.scale.batch_rows
    bench.beside(
        "append",
        [
            Case("Spark's file sink, Parquet", lambda: _query(bench, "parquet", read, rows, NEW)),
            Case("deltalake in a foreachBatch", lambda: _query(bench, "append", read, rows, NEW)),
        ],
        lambda: _pipeline(bench, read, 'table("bench")', rows, NEW),
        measures_of(bench.scale, APPEND),
    )


def upsert_few(bench: Bench) -> None:
    """A thousand keys, over and over."""
    _upsert(bench, "upsert", FEW)


def upsert_new(bench: Bench) -> None:
    """Every record has a key that is new."""
    _upsert(bench, "new-keys", NEW)


def _upsert(bench: Bench, scenario: str, key: str) -> None:
    read, rows = bench.orders(bench.scale.rows), bench.scale.batch_rows
    bench.beside(
        scenario,
        [Case("deltalake's merge in a foreachBatch", lambda: _query(bench, "merge", read, rows, key))],
        lambda: _pipeline(bench, read, 'table("bench", key="k")', rows, key),
        measures_of(bench.scale, UPSERT),
    )


def large(bench: Bench) -> None:
    """Millions of rows in the table, of which a batch changes a thousand that are next to each other."""
    _seeded(bench, "large", NEAR)


def spread(bench: Bench) -> None:
    """The same, a thousand rows that are spread over the whole table: all of its files are written again."""
    _seeded(bench, "spread", SPREAD)


def _seeded(bench: Bench, scenario: str, key: str) -> None:
    rows = bench.scale.batch_rows
    key = key.replace("seeded", str(bench.scale.seeded_rows)).replace("/", "div")

    def query() -> Timeline:
        read = bench.topic()
        bench.produce_orders(read, range(bench.scale.rows))
        return _query(bench, "merge", read, rows, key, seeded=True)

    def pipeline() -> Timeline:
        read = bench.topic()
        return _pipeline(bench, read, 'table("bench", key="k")', rows, key, seeded=True)

    case = f"{bench.scale.seeded_rows / 1e6:g} million rows in it · deltalake's merge in a foreachBatch"
    bench.beside(scenario, [Case(case, query)], pipeline, measures_of(bench.scale, UPSERT, None))


def _pipeline(bench: Bench, read: str, output: str, batch_rows: int, key: str, *, seeded: bool = False) -> Timeline:
    place = Path(tempfile.mkdtemp(prefix="pipeline-", dir=bench.directory))
    file, project = place / "bench.py", place / "pipelines"
    file.write_text(_FUNCTION.format(read=read, schema=SCHEMA, output=output, batch_rows=batch_rows, key=key))
    command = [str(Path(sys.executable).with_name("cordwood")), "pipeline", "run", str(file), "--once"]
    command += ["--max-restarts", "0", "-d", str(project), "-b", bench.broker.bootstrap]
    if seeded:
        # The pipeline makes its table; only then can others write to it.
        bench.produce_orders(read, range(_WARMING))
        run_timed(command, project, place / "output", {})
        _seed(project / "bench/editions/v1/tables/bench", bench.scale.seeded_rows)
        bench.produce_orders(read, range(_WARMING, bench.scale.rows))
    return run_timed(command, project, place / "output", {})


def _query(bench: Bench, how: str, read: str, batch_rows: int, key: str, *, seeded: bool = False) -> Timeline:
    place = Path(tempfile.mkdtemp(prefix="query-", dir=bench.directory))
    if seeded:
        _seed(place / "table", bench.scale.seeded_rows)
    command = [sys.executable, "-m", "benchmarks.spark_table_query", how, bench.broker.bootstrap, read]
    command += [str(place / "table"), str(place / "checkpoint"), str(batch_rows), key]
    return run_timed(command, place, place / "output", {})


def _seed(path: Path, rows: int) -> None:
    """Rows as the pipeline writes them, with the keys from nought on."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    for first in range(0, rows, _SEED_STEP):
        numbers = np.arange(first, min(first + _SEED_STEP, rows))
        words = pc.cast(pa.array(numbers), pa.string())
        customers = pc.cast(pa.array(numbers % 1000), pa.string())
        made = pa.table(
            {
                "id": pc.binary_join_element_wise("o", words, ""),
                "customer": pc.binary_join_element_wise("c", customers, ""),
                "amount": numbers / 100,
                "placed": numbers,
                "with_tax": numbers / 100 * 1.19,
                "k": numbers,
            }
        )
        write_deltalake(path, made, mode="append")


SCENARIOS: dict[str, tuple[str, Callable[[Bench], None]]] = {
    "append": ("Pipeline to a table, rows added", append),
    "upsert": ("Pipeline to a table with a key, 1,000 keys", upsert_few),
    "new-keys": ("Pipeline to a table with a key, all keys new", upsert_new),
    "large": ("Pipeline to a large table with a key, 1,000 neighbouring keys", large),
    "spread": ("Pipeline to a large table with a key, 1,000 keys all over it", spread),
}

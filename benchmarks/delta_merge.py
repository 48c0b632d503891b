"""`python -m benchmarks.delta_merge`: a batch into a large table with a key, ours beside `deltalake`'s; without Spark.

Ours is what the driver does with rows that the executors have staged: look up which files may hold a key of the batch,
and have `deltalake` merge within these ranges. The other is the same batch, given to `DeltaTable.merge` as it comes.
Every merge begins with a fresh copy of the table. CPU is that of this process, which is all there is.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from benchmarks.maven import PEERS
from cordwood.pipelines.definition.table_output import table
from cordwood.pipelines.tables.data_files import FileWriter
from cordwood.pipelines.tables.delta import DeltaBatches
from cordwood.pipelines.tables.latest_rows import DELETED
from cordwood.pipelines.tables.staged import Change, Staged
from cordwood.pipelines.tables.stores import LocalStore

STEP = 1_000_000
FIRST = 10_000_000
"""All numbers have as many digits, so that keys as text are in the order of the numbers."""


class Took(NamedTuple):
    seconds: float
    cpu_s: float
    result: Any


def orders(numbers: Any) -> pa.Table:
    words, customers = pc.cast(pa.array(numbers), pa.string()), pc.cast(pa.array(numbers % 1000), pa.string())
    return pa.table(
        {
            "id": pc.binary_join_element_wise("order-", words, ""),
            "customer": pc.binary_join_element_wise("c", customers, ""),
            "amount": numbers / 7,
        }
    )


def batches(rows: int) -> dict[str, Any]:
    """By name, the keys of a batch for a table with so many rows."""
    seeded = np.random.default_rng(1)
    half, new = FIRST + rows // 2, FIRST + 2 * rows
    return {
        "1,000 neighbouring keys": np.arange(half, half + 1000),
        "500,000 new keys beyond the others": np.arange(new, new + 500_000),
        "250,000 new keys, 250,000 neighbouring ones": np.concatenate(
            [np.arange(new, new + 250_000), np.arange(half, half + 250_000)]
        ),
        "1,000 keys all over the table": seeded.choice(rows, 1000, replace=False) + FIRST,
    }


def stage(rows: pa.Table, directory: Path) -> Staged:
    """In four files, as four tasks leave them."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    rows = rows.append_column(DELETED, pa.array(np.zeros(len(rows), bool)))
    files = []
    for part in range(4):
        writer = FileWriter(LocalStore(directory, durably=False), rows.schema)
        for batch in rows.slice(part * len(rows) // 4, len(rows) // 4).to_batches(10_000):
            writer.write(batch)
        files.append(writer.close())
    return Staged(tuple(files), len(rows))


def timed(work: Callable[[], Any]) -> Took:
    began, cpu_s = time.monotonic(), time.process_time()
    result = work()
    return Took(time.monotonic() - began, time.process_time() - cpu_s, result)


def plain(rows: pa.Table, directory: Path) -> Took:
    merge = DeltaTable(directory).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    return timed(merge.when_matched_update_all().when_not_matched_insert_all().execute)


def ours(rows: pa.Table, directory: Path, staging: Path) -> Took:
    writer = DeltaBatches(directory, table("orders", key="id"), staging)
    staged = stage(rows, staging)
    return timed(lambda: writer.commit(staged, "bench", 0))


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.delta_merge", description="Merges into a large table.")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows in the table, up to 40 million")
    rows = parser.parse_args().rows
    PEERS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="merge-", dir=PEERS) as name:
        seeded, copy, staging = (Path(name) / part for part in ("seeded", "copy", "staging"))
        for first in range(FIRST, FIRST + rows, STEP):
            write_deltalake(seeded, orders(np.arange(first, min(first + STEP, FIRST + rows))), mode="append")
        print(f"{rows:,} rows in {len(DeltaTable(seeded).file_uris())} files")
        for what, keys in batches(rows).items():
            found = []
            for is_ours in (False, True):
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(seeded, copy)
                made = orders(keys)
                found.append(ours(made, copy, staging) if is_ours else plain(made, copy))
            one, two = found
            change: Change = two.result
            print(
                f"{what}: deltalake {one.seconds:.2f} s ({one.cpu_s:.2f} s of CPU), "
                f"ours {two.seconds:.2f} s ({two.cpu_s:.2f} s of CPU), {two.cpu_s / one.cpu_s:.2f}x the CPU; "
                f"{change.files_searched} files searched, {change.files_rewritten} rewritten"
            )


if __name__ == "__main__":
    main()

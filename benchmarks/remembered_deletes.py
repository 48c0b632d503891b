"""`python -m benchmarks.remembered_deletes`: what `remember_deletes=` adds to a batch; without Spark.

A table of orders, and as many remembered deletes of other orders between them. The same batch of updates is merged with
and without the memory: its keys are neighbours, or lie all over the table, and a tenth of its rows delete. CPU is that
of this process, which is all there is.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.delta_merge import Took, timed
from benchmarks.maven import PEERS
from cordwood.pipelines.definition.table_output import table
from cordwood.pipelines.tables.data_files import FileWriter
from cordwood.pipelines.tables.delta import DeltaBatches
from cordwood.pipelines.tables.latest_rows import DELETED
from cordwood.pipelines.tables.remembered_deletes import AT_MS, BELOW
from cordwood.pipelines.tables.staged import Staged
from cordwood.pipelines.tables.stores import LocalStore

STEP = 1_000_000
BATCH = 100_000


def rows_of(ids: Any, at: int) -> pa.Table:
    return pa.table({"id": ids, "at": np.full(len(ids), at), "amount": ids})


def seed(directory: Path, rows: int) -> None:
    """Orders with even ids, and deletes of the odd ones."""
    for first in range(0, rows, STEP):
        ids = np.arange(first, min(first + STEP, rows)) * 2
        write_deltalake(directory, rows_of(ids, 1), mode="append")
        deletes = pa.table(
            {"id": ids + 1, "at": np.full(len(ids), 5), AT_MS: np.full(len(ids), int(time.time() * 1000))}
        )
        write_deltalake(directory / BELOW, deletes, mode="append")


def merged(directory: Path, staging: Path, ids: Any, *, remembers: bool) -> Took:
    declared = table("orders", key="id", latest_by="at", remember_deletes="7d" if remembers else None)
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    made = rows_of(ids, 3).append_column(DELETED, pa.array(np.arange(len(ids)) % 10 == 0))
    writer = FileWriter(LocalStore(staging, durably=False), made.schema)
    for batch in made.to_batches(10_000):
        writer.write(batch)
    staged = Staged((writer.close(),), len(ids))
    batches = DeltaBatches(directory, declared, staging)
    return timed(lambda: batches.commit(staged, "bench", 0))


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.remembered_deletes", description="Deletes that are kept.")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows in the table, and deletes that it remembers")
    rows = parser.parse_args().rows
    PEERS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="deletes-", dir=PEERS) as name:
        seeded, copy, staging = (Path(name) / part for part in ("seeded", "copy", "staging"))
        seed(seeded, rows)
        chosen = np.random.default_rng(1).choice(2 * rows, BATCH, replace=False)
        print(f"{rows:,} rows and as many remembered deletes, batches of {BATCH:,} rows")
        for what, ids in (("neighbouring keys", np.arange(rows, rows + BATCH)), ("keys all over", np.sort(chosen))):
            told = []
            for remembers in (False, True):
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(seeded, copy)
                took = merged(copy, staging, ids, remembers=remembers)
                told.append(f"{'remembering' if remembers else 'without'} {took.cpu_s:.2f} s of CPU")
            print(f"{what}: {', '.join(told)}")


if __name__ == "__main__":
    main()

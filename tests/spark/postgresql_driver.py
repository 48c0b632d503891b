"""A driver that writes batches into PostgreSQL until all are there: `python postgresql_driver.py URL TABLE KEYED`.

Spark is not around it: the two parts of a batch are copied by this process, as two tasks would. Like Spark it begins
with the batch that the table lacks, and does a batch again after a failure. The password is in PGPASSWORD.
"""

import sys
import time
from pathlib import Path

import psycopg
import pyarrow as pa

from cordwood.pipelines import jdbc
from cordwood.pipelines.postgresql.batches import PostgresBatches, staged_parts
from cordwood.pipelines.postgresql.copying import copy_part
from cordwood.pipelines.postgresql.place import Database

BATCHES, ROWS = 40, 50
COLUMNS = {"n": "bigint", "text": "text"}
STAGED = {**COLUMNS, "_deleted": "boolean", "_order_0": "bigint"}


def rows_of(batch_id: int, part: int, *, keyed: bool) -> pa.Table:
    first = batch_id * ROWS + part * ROWS // 2
    numbers = list(range(first, first + ROWS // 2))
    columns = {"n": pa.array(numbers), "text": pa.array([f"of batch {batch_id}"] * len(numbers))}
    if keyed:
        columns |= {"_deleted": pa.array([False] * len(numbers)), "_order_0": pa.array(numbers)}
    return pa.table(columns)


def main(url: str, name: str, keyed: bool) -> None:
    table = jdbc(url, name, key="n") if keyed else jdbc(url, name)
    place = Database(url, name, "v1", "price", "price/v1-1", leads=True).for_tasks()
    batches = PostgresBatches(place, table, Path())
    batch_id = 0
    while batch_id < BATCHES:
        try:
            last = batches.last_batch("query")
            batch_id = 0 if last is None else last + 1
            if batch_id == BATCHES:
                break
            staging = batches.begin(COLUMNS, STAGED if keyed else COLUMNS, ("_order_0",) if keyed else ())
            parts = []
            for number in range(2):
                rows = rows_of(batch_id, number, keyed=keyed)
                of_batch = iter(rows.to_batches())
                parts.append(copy_part(of_batch, rows.schema, place, staging, number, table.key, frozenset()))
            batches.commit(staged_parts(parts), "query", batch_id)
        except (psycopg.Error, RuntimeError) as failure:
            print(f"batch {batch_id} again: {type(failure).__name__}: {failure}", flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] == "keyed")

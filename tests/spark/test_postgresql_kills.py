"""PostgreSQL and the driver that writes batches into it, killed again and again: each row is there once."""

import os
import random
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import psycopg
import pytest
from tests.deadline import eventually
from tests.spark.postgresql_driver import BATCHES, ROWS
from tests.spark.postgresql_server import PASSWORD, PostgresServer

DRIVER = Path(__file__).with_name("postgresql_driver.py")
WITHIN_S = 600


@pytest.mark.parametrize("kind", ["added", "keyed"])
def test_each_row_is_there_once_through_kills_of_either_side(
    postgres: PostgresServer, tmp_path: Path, kind: str
) -> None:
    chosen = random.Random(f"kills of {kind}")
    driver = _started(postgres, tmp_path, kind)
    for _ in range(4):
        before = _done(postgres, kind)
        eventually(partial(_moves, postgres, kind, before), within_s=WITHIN_S, what="another batch")
        # Somewhere in the batch that is under way: while rows are copied, merged, or committed.
        for _ in range(chosen.randrange(20)):
            _staging(postgres)
        if chosen.random() < 0.5:
            postgres.kill()
            postgres.start()
        else:
            driver.kill()
            driver.wait()
            driver = _started(postgres, tmp_path, kind)
    assert driver.wait(WITHIN_S) == 0, (tmp_path / kind).read_text()[-3000:]
    found = Counter(number for (number,) in postgres.rows(f"select n from {kind}"))
    assert found == dict.fromkeys(range(BATCHES * ROWS), 1)
    assert _staging(postgres) == 0


def _started(postgres: PostgresServer, directory: Path, kind: str) -> "subprocess.Popen[bytes]":
    with open(directory / kind, "ab") as out:
        return subprocess.Popen(
            [sys.executable, str(DRIVER), postgres.url, kind, kind],
            env={**os.environ, "PGPASSWORD": PASSWORD},
            stdout=out,
            stderr=subprocess.STDOUT,
        )


def _done(postgres: PostgresServer, kind: str) -> int:
    """The number of the last batch; -1 before the first."""
    query = f"select coalesce(max(batch), -1) from cordwood_batches where relation = '{kind}__v1'"
    try:
        return int(postgres.rows(query)[0][0])
    except psycopg.errors.UndefinedTable:
        return -1


def _moves(postgres: PostgresServer, kind: str, before: int) -> bool:
    return _done(postgres, kind) > before or before == BATCHES - 1


def _staging(postgres: PostgresServer) -> int:
    return sum("__s" in name for name in postgres.tables())

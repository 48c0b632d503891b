"""Rows a second into PostgreSQL from Spark's tasks: psycopg's COPY, as tables of PostgreSQL are written, beside JDBC.

    python -m benchmarks.database_writes --rows 300000 --jar postgresql-42.7.7.jar

Both write the same rows into a table without a key, in turns, on one local Spark with two tasks. The jar is
PostgreSQL's driver from Maven Central (org.postgresql:postgresql).
"""

import argparse
import statistics
import time

from tests.spark.postgresql_server import PASSWORD, USER, PostgresServer

import cordwood.spark
from cordwood.pipelines.postgresql.copying import PART, copy_rows
from cordwood.pipelines.postgresql.place import Database
from cordwood.pipelines.tables.data_files import arrow_schema

COLUMNS = "id text, customer text, total double precision, at timestamptz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jar", required=True, help="PostgreSQL's JDBC driver")
    given = parser.parse_args()
    settings = {"spark.ui.enabled": False, "spark.jars": given.jar}
    spark = cordwood.spark.session("database writes", master="local[2]", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    rows = (
        spark.range(0, given.rows, 1, 2)
        .selectExpr(
            "cast(id as string) id",
            "cast(id % 1000 as string) customer",
            "id * 1.19D total",
            "timestamp'2026-01-01 00:00:00' + make_dt_interval(0, 0, 0, id % 100000) at",
        )
        .persist()
    )
    rows.count()
    assert arrow_schema(rows.schema).names == ["id", "customer", "total", "at"]
    took: dict[str, list[float]] = {"psycopg COPY": [], "JDBC": []}
    with PostgresServer() as server:
        place = Database(server.url, "t", "v1", "bench", "", given=(("password", PASSWORD),))
        server.execute(f"create unlogged table copied ({COLUMNS}, {PART} bigint)")
        server.execute(f"create unlogged table inserted ({COLUMNS})")
        url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres?reWriteBatchedInserts=true"
        options = {"url": url, "user": USER, "password": PASSWORD, "driver": "org.postgresql.Driver"}
        writer = rows.write.format("jdbc").options(**options, dbtable="inserted", batchsize=10_000).mode("append")
        for _ in range(given.rounds + 1):
            began_s = time.monotonic()
            copy_rows(rows, (), place, "copied", ())
            took["psycopg COPY"].append(time.monotonic() - began_s)
            began_s = time.monotonic()
            writer.save()
            took["JDBC"].append(time.monotonic() - began_s)
        counts = server.rows("select (select count(*) from copied), (select count(*) from inserted)")
        assert counts == [(given.rows * (given.rounds + 1),) * 2], counts
    for name, times in took.items():
        print(f"{name:14} {given.rows / statistics.median(times[1:]):>10,.0f} rows/s")
    ratios = [slow / quick for quick, slow in zip(took["psycopg COPY"][1:], took["JDBC"][1:], strict=True)]
    print(f"COPY is {statistics.median(ratios):.1f} times as fast as JDBC")
    spark.stop()


if __name__ == "__main__":
    main()

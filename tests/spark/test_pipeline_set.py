"""A bug in the first of three pipelines on Spark: replayed with all that reads it, swapped and rolled back as one."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.chain_workshop import Chain
from tests.spark.conftest import Produce
from tests.spark.pipeline_workshop import orders

FILES = {
    "priced": """
@pipeline("{name}-priced", version={version}, inputs=topic("{topic}", value=json("id string, amount int")),
          outputs=topic("{name}.priced", key="id"), max_rows_per_batch=3)
def priced(orders):
    return orders.selectExpr("id", "amount * {version} as total", "_record")
""",
    "big": """
@pipeline("{name}-big", version=1, inputs=output("{name}-priced", "{name}.priced", value=json("id string, total int")),
          outputs=topic("{name}.big", key="id"))
def big(priced):
    return priced.where("total >= 4 or _record.tombstone")
""",
    "sums": """
@pipeline("{name}-sums", version=1, stateful=True, output_mode="update",
          inputs=output("{name}-big", "{name}.big", value=json("id string, total int")),
          outputs=table("{name}-sums", key="parity"))
def sums(big):
    return big.groupBy((F.col("total") % 2).alias("parity")).agg(F.count("*").alias("n"), F.sum("total").alias("sum"))
""",
}


def sums(chain: Chain) -> list[tuple[int, ...]]:
    return chain.shops["sums"].rows(f"{chain.name}-sums")


@pytest.fixture
def chain(tmp_path: Path, spark: SparkSession, broker: RunningBroker, make_topic: MakeTopic) -> Chain:
    return Chain(tmp_path, spark, broker.bootstrap, make_topic(2), FILES)


def test_a_bug_upstream_is_mended_for_all_that_reads_it_at_one_moment(chain: Chain, put: Produce) -> None:
    put(chain.topic, [*orders(range(1, 6)), *orders(range(6, 9), partition=1)])
    chain.run()
    wrong = [(0, 3, 4 + 6 + 8), (1, 2, 5 + 7)]
    assert sums(chain) == wrong

    chain.write("priced", 2)
    made = chain.replay_downstream()
    assert str(made) == f"{chain.name}-priced v2, {chain.name}-big v1.2, {chain.name}-sums v1.2"
    assert sums(chain) == wrong, "what is live is as it was"
    chain.write("priced", 1)
    put(chain.topic, orders([9]))
    chain.run()
    assert sums(chain) == [(0, 3, 18), (1, 3, 21)], "and runs on beside the set"

    chain.swap("big")
    chain.write("priced", 2)
    assert sums(chain) == [(0, 7, 2 * sum(range(2, 9)))]
    put(chain.topic, orders([10]))
    chain.run()
    assert sums(chain) == [(0, 9, 2 * sum(range(2, 11)))], "each record once, as version 2 has it"

    chain.rollback("sums")
    chain.write("priced", 1)
    chain.run()
    assert sums(chain) == [(0, 4, 28), (1, 3, 21)], "the old editions go on where each of them stopped"

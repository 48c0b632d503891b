"""The stream that a pipeline reads, and its outputs as plain streams for your own queries.

    for name, rows in streams(orders, spark, bootstrap_servers="localhost:9092").items(): ...

Works with any session, Spark Connect and `spark-pipelines` included. Plain streams have no quarantine, no table and no
edition: your query decides where their rows go, and how often.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.definition import ERROR, RECORD, Pipeline
from cordwood.pipelines.definition.starting import starting_options
from cordwood.pipelines.editions.positions import Positions, to_json
from cordwood.pipelines.execution.batches import good_rows, outputs_of
from cordwood.pipelines.rows.decoding import inputs_of, parsed_once
from cordwood.pipelines.rows.rules import passing_or_raising, raising
from cordwood.spark.options.security import connection_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def source_stream(
    pipeline: Pipeline,
    spark: "SparkSession",
    *,
    bootstrap: Bootstrap,
    starting: str,
    whole_partitions: bool = False,
    stop_at: Positions | None = None,
    continue_at: Positions | None = None,
) -> "DataFrame":
    """The records of all inputs, as the source gives them. `whole_partitions`: all records of a partition go to one
    task. `stop_at` and `continue_at`: where the stream ends, and the topics that it goes over to there."""
    options = {
        **connection_options(bootstrap),
        "kafka.isolation.level": "read_committed",
        "subscribe": ",".join(topic.name for topic in pipeline.inputs.values()),
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(pipeline.settings.max_rows_per_batch),
        **({"wholePartitions": "true"} if whole_partitions else {}),
        **starting_options(starting),
        **pipeline.settings.source_options,
        **({"stopAtOffsets": json.dumps(to_json(stop_at))} if stop_at else {}),
        **({"continueAtOffsets": json.dumps(to_json(continue_at))} if continue_at else {}),
    }
    return spark.readStream.format("cordwood").options(**options).load()


def reads_whole_partitions(pipeline: Pipeline, partitions: int, cores: int) -> bool:
    """True if one task for each partition is faster than several.

    With one task the order of a key's records reaches an output topic without a shuffle, which takes about as long as
    all the rest. With many more cores than partitions, several tasks and a shuffle are faster.
    """
    has_order = any(topic.key is not None for topic in pipeline.topics.values())
    given = {name.lower() for name in pipeline.settings.source_options}
    cuts = given & {"minpartitions", "maxrecordsperpartition", "wholepartitions"}
    return has_order and not pipeline.settings.stateful and not cuts and 2 * partitions >= cores


def streams(
    pipeline: Pipeline,
    spark: "SparkSession",
    *,
    bootstrap_servers: str | Mapping[str, str],
    starting: str | None = None,
) -> "dict[str, DataFrame]":
    """The outputs by name, as streaming DataFrames. A record that cannot be decoded fails the query that reads it; so
    does a row that breaks a rule, unless the rule drops such rows. Brokers that ask for TLS or a log-in take, in the
    place of addresses, the settings of a client on librdkafka."""
    from pyspark.sql import functions as F

    begin = pipeline.settings.starting if starting is None else starting
    rows = source_stream(pipeline, spark, bootstrap=Bootstrap.of(bootstrap_servers), starting=begin)
    address = F.concat_ws(" ", F.col(f"{RECORD}.topic"), F.col(f"{RECORD}.partition"), F.col(f"{RECORD}.offset"))
    poison = F.when(F.col(ERROR).isNotNull(), F.raise_error(F.concat(address, F.lit(": "), F.col(ERROR))))
    inputs = {name: parsed_once(each, f"input {name}") for name, each in inputs_of(pipeline, rows).items()}
    checked = {
        name: raising(each.where(poison.isNull()), pipeline.inputs[name].expect) for name, each in inputs.items()
    }
    outputs = outputs_of(pipeline, good_rows(checked))
    return {name: passing_or_raising(each, pipeline.outputs[name]).drop(RECORD) for name, each in outputs.items()}

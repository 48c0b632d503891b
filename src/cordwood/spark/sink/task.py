"""One attempt of one writing task: Arrow batches in, acknowledged record batches out, a report for the driver.

A block is partitioned and encoded while earlier ones are on their way; the client bounds the bytes under way. The input
is always taken to its end, even if nothing is written: stateful operators before the sink save their state only then.
"""

import itertools
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from cordwood.client.cluster import Cluster
from cordwood.client.errors import BrokerUnreachable, RequestRefused
from cordwood.columnar.encoding import OutgoingRows
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.records.batch import Buffer
from cordwood.spark.sink.blocks import gather, to_block
from cordwood.spark.sink.columns import SinkColumns
from cordwood.spark.sink.families import FamilyPromise, Renewer
from cordwood.spark.sink.options import Guarantee, SinkOptions
from cordwood.spark.sink.promises import Producer, Promise, WriteIdentity, transaction_timeout_ms
from cordwood.spark.sink.protocol import NO_TOPIC, SinkFailure, TaskReport
from cordwood.spark.sink.routing import Router, Rows
from cordwood.spark.sink.steps import Step, reached
from cordwood.spark.sink.transactions import PlainPromise, TaskTransactionPromise
from cordwood.spark.workers.state import cluster_of, freeze_once, query_name_of_task
from cordwood.wire.apis import ApiKey

_SEQUENCES = 2**31
"""Sequence numbers restart at 0 after the largest."""


def write_task(
    options: SinkOptions, columns: SinkColumns, identity: WriteIdentity, batches: Iterator[Any]
) -> TaskReport:
    """Writes the rows of one attempt. After any failure none of them will be visible (unless exactlyOnce=false)."""
    began_s = time.monotonic()
    rows = _Input(batches)
    with _signs_of_life(options, identity):
        report = _write_task(options, columns, identity, rows)
    took_ms, input_ms = round((time.monotonic() - began_s) * 1000), round(rows.waited_s * 1000)
    return replace(report, input_ms=input_ms, write_ms=max(0, took_ms - input_ms))


class _Input:
    """Spark's batches, with the time that was spent waiting for them."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self.waited_s = 0.0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        asked_s = time.monotonic()
        try:
            return next(self._batches)
        finally:
            self.waited_s += time.monotonic() - asked_s


def _signs_of_life(options: SinkOptions, identity: WriteIdentity) -> AbstractContextManager[None]:
    """Renews the family while this task works: other tasks may be done, and wait for it."""
    if options.guarantee is not Guarantee.MICRO_BATCH:
        return nullcontext()
    timeout_ms = transaction_timeout_ms(options, Guarantee.MICRO_BATCH)
    return Renewer(options.client, identity.family, identity.batch_id, timeout_ms)


def _write_task(
    options: SinkOptions, columns: SinkColumns, identity: WriteIdentity, batches: Iterator[Any]
) -> TaskReport:
    blocks = gather(batches, options.linger_ms)
    first = next(blocks, None)
    if first is None:
        return _report(identity, options.guarantee)
    reached(Step.TASK_STARTED)
    cluster = cluster_of(options.client)
    promise = choose_promise(cluster, options, identity)
    producer = promise.begin()
    if producer is None:
        skipped = first.num_rows + sum(batch.num_rows for batch in blocks)
        return _report(identity, promise.guarantee, skipped_rows=skipped)
    reached(Step.TASK_JOINED)
    task = _Task(cluster, options, columns, identity, producer)
    try:
        task.write(itertools.chain([first], blocks))
        reached(Step.TASK_FLUSHED)
        promise.complete(task.sequences.keys())
    except BaseException as failure:
        if not isinstance(failure, BrokerUnreachable):
            promise.abandon()
        raise
    reached(Step.TASK_COMPLETED)
    freeze_once()
    return _report(identity, promise.guarantee, promise, rows=task.rows, encoded_bytes=task.encoded_bytes)


def choose_promise(cluster: Cluster, options: SinkOptions, identity: WriteIdentity) -> Promise:
    """The strongest promise that was asked for and that the broker can keep."""
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return PlainPromise(cluster, idempotent=options.idempotent)
    if options.guarantee is Guarantee.MICRO_BATCH:
        if cluster.supports(ApiKey.FAMILY_JOIN):
            timeout_ms = transaction_timeout_ms(options, Guarantee.MICRO_BATCH)
            return FamilyPromise(cluster, identity, timeout_ms, options.older_batches, options.unknown_query)
        if options.batch_id is not None:
            raise SinkFailure(
                "This broker has no transaction families, so it cannot remember batch "
                f"{options.batch_id} of '{options.family}': leave out the option 'batchId', or write to Cordwood"
            )
    timeout_ms = transaction_timeout_ms(options, Guarantee.TASK)
    return TaskTransactionPromise(cluster, identity, timeout_ms, options.older_batches)


class _Task:
    """The writing itself: routes rows, sends them, and counts."""

    def __init__(
        self,
        cluster: Cluster,
        options: SinkOptions,
        columns: SinkColumns,
        identity: WriteIdentity,
        producer: Producer,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._columns = columns
        self._producer = producer
        self._partition_counts: dict[str, int] = {}
        self._router = Router(options.topic, self._partition_count, identity.task + identity.batch_id)
        self.sequences: dict[TopicPartition, int] = {}
        """The next sequence number in every partition written to."""
        self.rows = 0
        self.encoded_bytes = 0

    def write(self, batches: Iterator[Any]) -> None:
        """Writes all batches, and returns when every row is acknowledged."""
        try:
            self._send(batches)
        except RequestRefused as refused:
            if refused.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            raise SinkFailure(
                f"{refused}. Rows are put together into batches of up to {self._options.batch_bytes} bytes: set "
                "'kafka.batch.size' below the topic's max.message.bytes, or raise that. A row that is larger alone "
                "needs the latter"
            ) from refused

    def _send(self, batches: Iterator[Any]) -> None:
        pipeline = self._cluster.pipeline(acks=self._options.acks, transactional_id=self._producer.transactional_id)
        for batch in batches:
            block = to_block(batch, self._columns, int(time.time() * 1000))
            outgoing = OutgoingRows(block.key, block.value, block.headers, block.timestamp_ms)
            encoded = self._encoded(outgoing, self._router.route(block))
            pipeline.send(encoded)
            self.rows += block.count
            self.encoded_bytes += sum(len(data) for of_partition in encoded.values() for data in of_partition)
            reached(Step.TASK_PRODUCED)
        pipeline.finish()

    def _encoded(
        self, outgoing: OutgoingRows, routed: list[tuple[TopicPartition, Rows]]
    ) -> dict[TopicPartition, list[Buffer]]:
        options, producer = self._options, self._producer
        encoded = outgoing.encode_groups(
            [(rows, self._take_sequences(partition, len(rows))) for partition, rows in routed],
            codec=options.codec,
            level=options.codec_level,
            max_batch_bytes=options.batch_bytes,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional=producer.transactional_id is not None,
        )
        return {
            partition: [batch.data for batch in batches]
            for (partition, _), batches in zip(routed, encoded, strict=True)
        }

    def _take_sequences(self, partition: TopicPartition, count: int) -> int:
        """The first of the next `count` sequence numbers in this partition; -1 if the producer has none."""
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = (sequence + count) % _SEQUENCES
        return sequence if self._producer.producer_id >= 0 else -1

    def _partition_count(self, topic: str) -> int:
        known = self._partition_counts.get(topic)
        if known is None:
            known = self._partition_counts[topic] = self._look_up(topic)
        return known

    def _look_up(self, topic: str) -> int:
        deadline_s = time.monotonic() + self._options.metadata_wait_ms / 1000
        while True:
            found = self._cluster.topics([topic], create=self._options.create_topics).get(topic)
            if found is not None and found.partitions:
                return len(found.partitions)
            if time.monotonic() >= deadline_s:
                automatic = (
                    "have the broker do so (auto.create.topics.enable=true)"
                    if self._options.create_topics
                    else "let the broker do so (createTopics=true)"
                )
                raise SinkFailure(
                    f"Topic '{topic}' {NO_TOPIC} "
                    f"{self._options.metadata_wait_ms} ms (kafka.max.block.ms): create it, or {automatic}"
                )
            time.sleep(min(0.1, self._options.metadata_wait_ms / 1000))


def _report(
    identity: WriteIdentity,
    guarantee: Guarantee,
    promise: Promise | None = None,
    *,
    rows: int = 0,
    encoded_bytes: int = 0,
    skipped_rows: int = 0,
) -> TaskReport:
    return TaskReport(
        guarantee=guarantee,
        family=identity.family,
        batch_id=identity.batch_id,
        task=identity.task,
        attempt=identity.attempt,
        slot=None if promise is None else promise.slot,
        rows=rows,
        bytes=encoded_bytes,
        skipped_rows=skipped_rows,
        query_name=query_name_of_task(),
    )

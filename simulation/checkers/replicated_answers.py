"""Checks the answers of brokers of a replicated cluster to clients, at the moment of the answer.

An acknowledgement for all replicas is given only for committed records (rule 9), a reader gets only committed records,
below the last stable offset if it asks for that (rule 10), and a former leader stops serving when its authority ends.
Records whose deletion is acknowledged stay deleted (rule 13).
"""

from collections.abc import Iterator
from typing import Any

from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicId
from cordwood.node.partitions.partition import Partition
from cordwood.records.batch import batches_in, crc_is_right, read_header
from cordwood.records.records import records_in
from cordwood.wire.apis import ApiKey
from simulation.checkers.content import read_batches
from simulation.checkers.replica_history import PartitionHistory
from simulation.checkers.replicas import ReplicasChecker, digest
from simulation.world.broken import InvariantBroken
from simulation.world.exchange import Exchange
from simulation.world.ledger import Ledger, lasting_part
from simulation.world.links import CLIENTS
from simulation.world.machine import Machine

ALL_REPLICAS = -1
READ_COMMITTED = 1
LATEST = -1
PRODUCE_BY_ID_FROM = FETCH_BY_ID_FROM = 13


class ReplicatedAnswers:
    def __init__(self, machine: Machine, ledger: Ledger, replicas: ReplicasChecker) -> None:
        self._machine = machine
        self._ledger = ledger
        self._replicas = replicas
        self._topic_ids: dict[Exchange, dict[str, TopicId]] = {}
        """The ids that the topic names of a produce request had at its arrival."""
        self._registered: dict[Exchange, int | None] = {}
        """The broker epochs that followers had in this broker's image when their fetches arrived."""
        self.acks = 0

    def new_life(self) -> None:
        self._topic_ids.clear()
        self._registered.clear()

    def requested(self, exchange: Exchange) -> None:
        if exchange.key is ApiKey.PRODUCE:
            names = sorted(topic["name"] for topic in exchange.values["topic_data"] if topic.get("name"))
            self._topic_ids[exchange] = {name: self._machine.node.image.topic_id(name) for name in names}
        elif exchange.key is ApiKey.FETCH and exchange.connection.source != CLIENTS:
            self._registered[exchange] = self._registered_epoch(exchange)

    def sent(self, exchange: Exchange) -> None:
        if exchange.connection.source != CLIENTS:
            if exchange.key is ApiKey.FETCH:
                self._followed(exchange)
            return
        if exchange.key is ApiKey.PRODUCE:
            self._replicas.look(self._machine)
            self._produced(exchange)
        elif exchange.key is ApiKey.FETCH:
            self._replicas.look(self._machine)
            self._fetched(exchange)
        elif exchange.key is ApiKey.LIST_OFFSETS:
            self._replicas.look(self._machine)
            self._listed(exchange)
        elif exchange.key is ApiKey.DELETE_RECORDS:
            self._deleted(exchange)

    # Followers

    def _followed(self, exchange: Exchange) -> None:
        """Checks that a leader answers followers of its own epoch, in their present registrations."""
        follower = exchange.values["replica_state"]
        epochs = {
            (topic["topic_id"], each["partition"]): each["current_leader_epoch"]
            for topic in exchange.values["topics"]
            for each in topic["partitions"]
        }
        known = (self._registered.pop(exchange, None), self._registered_epoch(exchange))
        # The leader looks once, between the arrival and the answer: at that moment it may know a registration that is
        # neither the first nor the last.
        first, last = sorted(epoch or 0 for epoch in known)
        for topic in exchange.answer.responses:
            for part in topic.partitions:
                served = self._served(topic.topic_id, part.partition_index)
                if part.error_code or served is None or (leading := served[0].role.leading) is None:
                    continue
                asked = epochs[topic.topic_id, part.partition_index]
                if asked != leading.leader_epoch or not first <= follower["replica_epoch"] <= last:
                    raise InvariantBroken(
                        f"rule 1: {exchange}: the leader of epoch {leading.leader_epoch} answers a follower of epoch "
                        f"{asked} in broker epoch {follower['replica_epoch']}, and knows {known}"
                    )

    def _registered_epoch(self, exchange: Exchange) -> int | None:
        return self._machine.node.image.broker_epochs.get(exchange.values["replica_state"]["replica_id"])

    # The serving brokers

    def _served(self, topic_id: TopicId, index: int) -> tuple[Partition, PartitionHistory] | None:
        """The partition as this broker has it; None if it is being deleted."""
        topic = self._machine.node.image.topics_by_id.get(topic_id)
        partition = None if topic is None else self._machine.node.hosted.get(topic.name, index)
        history = self._replicas.histories.get((topic_id, index))
        return None if partition is None or history is None else (partition, history)

    def _check_authority(self, exchange: Exchange, partition: Partition, history: PartitionHistory) -> None:
        """Refuses service of a deposed leader for longer than two thirds of a lease after a successor took the lead.

        Before that no broker has served anything newer: a successor that does not know of its election still follows,
        and vouches for the leader (docs/internals/cluster.md derives the bound).
        """
        node = self._machine.node
        if self._machine.setup.clustered and node.image.node_id not in node.image.brokers:
            raise InvariantBroken(f"rule 10: {exchange}: {self._machine} serves, and knows that its row is gone")
        leading = partition.role.leading
        if leading is None or not partition.role.leads or leading.leader_epoch >= history.leadership.epoch:
            return
        key = (partition.topic_id, partition.name.partition)
        succeeded_ms = self._replicas.succeeded_for_ms(key, leading.leader_epoch, self._machine)
        if succeeded_ms > self._machine.setup.lease_ms * 2 // 3:
            raise InvariantBroken(
                f"rule 10: {exchange}: {self._machine} serves {partition.name} in epoch {leading.leader_epoch}; "
                f"a later leader has led for {succeeded_ms} ms: {history.leadership}"
            )

    def _rotten_until(self, partition: Partition) -> int:
        """The end of the part of the partition that may be rotten here."""
        return self._replicas.rotten_until(self._machine.broker_id, (partition.topic_id, partition.name.partition))

    # Produce

    def _produced(self, exchange: Exchange) -> None:
        names = self._topic_ids.pop(exchange, {})
        asked: Iterator[tuple[TopicId, Any]] = (
            (topic.get("topic_id") or names.get(topic.get("name", ""), ZERO_TOPIC_ID), each)
            for topic in exchange.values["topic_data"]
            for each in topic["partition_data"]
        )
        results = [each for topic in exchange.answer.responses for each in topic.partition_responses]
        for (topic_id, each), result in zip(asked, results, strict=True):
            if result.error_code == 0 and (served := self._served(topic_id, each["index"])) is not None:
                if len(results) == 1:
                    # An answer about several partitions waits for the last: its first outcomes may be older.
                    self._check_authority(exchange, *served)
                self._check_ack(exchange, *served, each["records"], result.base_offset)

    def _check_ack(
        self, exchange: Exchange, partition: Partition, history: PartitionHistory, batch: bytes, base_offset: int
    ) -> None:
        self.acks += 1
        end = base_offset + read_header(batch).last_offset_delta + 1
        log = partition.opened
        if exchange.values["acks"] != ALL_REPLICAS:
            # A single replica has the record. If that replica no longer leads, the record may be gone by now.
            if partition.role.leads and log is not None:
                safe_end = log.offsets.durable_end if history.on_disk else log.offsets.end
                if partition.role.leading is not None and safe_end < end:
                    raise InvariantBroken(f"rule 9: {exchange}: {partition.name} acknowledged {end - 1} of {safe_end}")
            return
        if end > history.committed_end and not history.lost:
            raise InvariantBroken(
                f"rule 9: {exchange}: {partition.name} acknowledged {end - 1}, and is committed to "
                f"{history.committed_end}: {history!r}"
            )
        rotten_until = self._rotten_until(partition)
        if log is None or end > history.committed_end or base_offset < max(log.offsets.start, rotten_until):
            return
        with self._machine.disk.sound():
            (_, found), *_ = read_batches(log, base_offset)
        if lasting_part(found) != lasting_part(batch):
            raise InvariantBroken(f"rule 9: {exchange}: {partition.name} holds another batch at {base_offset}")
        known = self._ledger.partition(partition.topic_id, *partition.name)
        self._ledger.promised(known, batch, base_offset, on_disk=history.on_disk)

    # ListOffsets

    def _listed(self, exchange: Exchange) -> None:
        """Checks that no leader reports an end below an offset that readers of earlier leaders have seen."""
        asked = {
            (topic["name"], each["partition_index"]): each["timestamp"]
            for topic in exchange.values["topics"]
            for each in topic["partitions"]
        }
        image = self._machine.node.image
        for topic in exchange.answer.topics:
            for each in topic.partitions:
                served = self._served(image.topic_id(topic.name) or ZERO_TOPIC_ID, each.partition_index)
                if each.error_code or served is None:
                    continue
                partition, history = served
                self._check_authority(exchange, partition, history)
                newest = partition.role.leads and partition.role.leader_epoch >= history.leadership.epoch
                latest = asked[topic.name, each.partition_index] == LATEST and not exchange.values["isolation_level"]
                if newest and latest and each.offset < history.committed_end and not history.lost:
                    raise InvariantBroken(f"rule 7: {exchange} was told of the end {each.offset}: {history!r}")

    # DeleteRecords

    def _deleted(self, exchange: Exchange) -> None:
        for topic in exchange.answer.topics:
            for each in topic.partitions:
                topic_id = self._machine.node.image.topic_id(topic.name) or ZERO_TOPIC_ID
                served = self._served(topic_id, each.partition_index)
                if each.error_code == 0 and served is not None:
                    history = served[1]
                    history.deleted_before = max(history.deleted_before, each.low_watermark)

    # Fetch

    def _fetched(self, exchange: Exchange) -> None:
        image = self._machine.node.image
        for topic in exchange.answer.responses:
            by_id = exchange.version >= FETCH_BY_ID_FROM
            topic_id = (topic.topic_id if by_id else image.topic_id(topic.topic)) or ZERO_TOPIC_ID
            for part in topic.partitions:
                if part.error_code == 0 and (served := self._served(topic_id, part.partition_index)) is not None:
                    self._check_authority(exchange, *served)
                    self._check_records(exchange, *served, part)

    def _check_records(self, exchange: Exchange, partition: Partition, history: PartitionHistory, part: Any) -> None:
        if part.high_watermark > history.committed_end and not history.lost:
            raise InvariantBroken(f"rule 10: {exchange} was told of {part.high_watermark}: {history!r}")
        end = history.committed_end
        if exchange.values["isolation_level"] == READ_COMMITTED:
            end = min(end, part.last_stable_offset)
        known = self._ledger.partition(partition.topic_id, *partition.name)
        data = part.records or b""
        for position, header in batches_in(data):
            batch = data[position : position + header.size]
            if not crc_is_right(batch, 0, header.size):
                if self._rotten_until(partition):
                    return  # not found yet: clients compare checksums
                raise InvariantBroken(f"{exchange} got a batch at {header.base_offset} with a wrong CRC")
            if history.lost and header.next_offset > history.committed_end:
                continue
            if header.next_offset > end:
                raise InvariantBroken(f"rule 10: {exchange} got offset {header.last_offset}: {history!r}")
            committed = history.committed_at(header.base_offset)
            if committed is None or committed.content != digest(batch):
                raise InvariantBroken(f"rule 3: {exchange} got another batch at {header.base_offset} than {committed}")
            for record in records_in(batch):
                known.know(record.offset, record)

"""Requests to a leader that is cut off from the other nodes, and not from its clients: by raw requests, so that no
client goes to the next leader by itself."""

import time
import uuid
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.faults.stage import Node, Stage
from tests.raw_client import RawClient

from cordwood.model.errors import ErrorCode
from cordwood.records.batch import batches_in
from cordwood.records.build import build_batch
from cordwood.records.records import records_in
from cordwood.wire.apis import ApiKey

ALL, LEADER = -1, 1
WITHIN_S = 60.0
PLENTY = 1 << 20
PATIENCE_MS = 300
"""How long the leader waits for its followers before it answers a write."""
SERVES_AT_MOST_S = 20.0


class Told(NamedTuple):
    """What a leader that is cut off told its clients."""

    appended: int
    """Records that it acknowledged for itself alone."""
    reads: int
    served_s: float


class CutOffLeader:
    """A topic of its own, with acknowledged records, and its leader."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._topic = f"deposed-{uuid.uuid4().hex[:8]}"
        self._kept = [f"kept-{number}" for number in range(20)]
        new = NewTopic(self._topic, 1, 3, config={"min.insync.replicas": "2"})
        admin = AdminClient({"bootstrap.servers": stage.bootstrap})
        admin.create_topics([new])[self._topic].result(WITHIN_S)
        self._produce(self._kept)
        self.node: Node = stage.leader(self._topic, 0)

    def _produce(self, values: list[str]) -> None:
        producer = Producer({"bootstrap.servers": self._stage.bootstrap, "acks": "all"})
        for value in values:
            producer.produce(self._topic, value)
        assert producer.flush(WITHIN_S) == 0

    def ask_until_refused(self) -> Told:
        """Writes to the leader and reads from it until it refuses: nobody may see a record that the next leader lacks.
        The node is cut off before."""
        client = RawClient(self.node.broker.address, WITHIN_S)
        began_s = time.monotonic()
        appended = reads = 0
        while time.monotonic() < began_s + SERVES_AT_MOST_S:
            for acks in (LEADER, ALL):
                error = self._write(client, acks)
                assert acks != ALL or error is not ErrorCode.NONE, (
                    "acks=all was acknowledged by a leader that is cut off"
                )
                appended += acks == LEADER and error is ErrorCode.NONE
            for isolation_level in (0, 1):
                error, values = self._read(client, isolation_level)
                if error is not ErrorCode.NONE:
                    assert error is ErrorCode.NOT_LEADER_OR_FOLLOWER, error.name
                    client.close()
                    return Told(appended, reads, time.monotonic() - began_s)
                assert values == self._kept, f"a leader that is cut off shows {values[len(self._kept) :]}"
                reads += 1
        raise AssertionError(f"broker {self.node.id} serves {SERVES_AT_MOST_S} s after it was cut off")

    def _write(self, client: RawClient, acks: int) -> ErrorCode:
        batch = bytes(build_batch([(int(time.time() * 1000), None, b"only at the leader that was cut off", ())]))
        entry = {"name": self._topic, "partition_data": [{"index": 0, "records": batch}]}
        answer = client.send(ApiKey.PRODUCE, 8, acks=acks, timeout_ms=PATIENCE_MS, topic_data=[entry])
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def _read(self, client: RawClient, isolation_level: int) -> tuple[ErrorCode, list[str]]:
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": PLENTY}
        answer = client.send(
            ApiKey.FETCH,
            11,
            max_bytes=PLENTY,
            isolation_level=isolation_level,
            session_epoch=-1,
            topics=[{"topic": self._topic, "partitions": [asked]}],
        )
        (partition,) = answer.responses[0].partitions
        data = memoryview(partition.records or b"")
        batches = [data[position : position + header.size] for position, header in batches_in(data)]
        values = [(record.value or b"").decode() for batch in batches for record in records_in(batch)]
        return ErrorCode(partition.error_code), values

    def check_healed(self, told: Told) -> None:
        """After the cut is mended: the records that only the leader had are gone, all others are there, once."""
        self._stage.wait_healed()
        more = ["written by the next leader"]
        self._produce(more)
        wanted = [*self._kept, *more]
        reader = Consumer({"bootstrap.servers": self._stage.bootstrap, "group.id": self._topic})
        reader.assign([TopicPartition(self._topic, 0, 0)])
        found: list[str] = []
        until_s = time.monotonic() + WITHIN_S
        while len(found) < len(wanted) and time.monotonic() < until_s:
            message = reader.poll(1.0)
            if message is not None and message.error() is None:
                found.append((message.value() or b"").decode())
        reader.close()
        assert found == wanted, f"a reader finds {found}"
        if told.appended:
            said = self.node.broker.output_path.read_text(errors="replace")
            assert f"{self._topic}-0: is cut at offset" in said, "the tail of the leader that was cut off is not cut"

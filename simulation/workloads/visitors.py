"""Visitors only read, vandals send bad batches. Both get their answers."""

from typing import Any

from cordwood.records.batch import CRC_POSITION
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey
from simulation.world.ledger import IDENTITY_HEADER
from simulation.world.stage import Client

TOPIC_RESOURCE = 2


class Visitor(Client):
    """Sends requests that only read."""

    def act(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None:
            return None
        indexes = list(range(len(topic.partitions)))
        key, values = self.chance.choice(self._questions(topic.name, indexes))
        self.connection.request(key, self.stage.version(key), values, self.routes.noted)
        return f"asks {key.name}"

    def finish(self) -> bool:
        return False

    def _questions(self, topic: str, indexes: list[int]) -> list[tuple[ApiKey, dict[str, Any]]]:
        chance, now_ms = self.chance, self.stage.world.clock.wall_ms
        timestamp = chance.choice((-1, -2, -3, -4, -5, now_ms, now_ms - chance.randrange(20_000)))
        listed = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp} for index in indexes]
        epochs = [
            {"partition": index, "current_leader_epoch": -1, "leader_epoch": chance.randrange(4)} for index in indexes
        ]
        return [
            (ApiKey.METADATA, {"topics": [{"name": topic}], "allow_auto_topic_creation": False}),
            (ApiKey.DESCRIBE_CLUSTER, {}),
            (ApiKey.DESCRIBE_TOPIC_PARTITIONS, {"topics": [{"name": topic}], "cursor": None}),
            (ApiKey.DESCRIBE_CONFIGS, {"resources": [{"resource_type": TOPIC_RESOURCE, "resource_name": topic}]}),
            (ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}),
            (ApiKey.DESCRIBE_PRODUCERS, {"topics": [{"name": topic, "partition_indexes": indexes}]}),
            (ApiKey.LIST_OFFSETS, {"replica_id": -1, "topics": [{"name": topic, "partitions": listed}]}),
            (ApiKey.OFFSET_FOR_LEADER_EPOCH, {"replica_id": -1, "topics": [{"topic": topic, "partitions": epochs}]}),
            (ApiKey.API_VERSIONS, {"client_software_name": "visitor", "client_software_version": "1"}),
        ]


class Vandal(Client):
    """Sends batches that must not get into the log."""

    def act(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None:
            return None
        now_ms = self.stage.world.clock.wall_ms
        record = (now_ms, b"key", b"never", [(IDENTITY_HEADER, self.stage.new_identity(self.name))])
        batch = build_batch([record])
        acks, index, transactional_id = self.chance.choice((0, 1, -1)), 0, None
        mischief = self.chance.choice(("crc", "cut", "empty", "acks", "transaction", "partition", "control", "null"))
        records: bytes | None = bytes(batch)
        match mischief:
            case "crc":
                batch[CRC_POSITION] ^= 1
                records = bytes(batch)
            case "cut":
                records = bytes(batch[: self.chance.randrange(len(batch))])
            case "empty":
                records = b""
            case "null":
                records = None
            case "acks":
                acks = 2
            case "transaction":
                transactional_id = "nobody"
                records = bytes(
                    build_batch([record], producer_id=9999, producer_epoch=0, base_sequence=0, transactional=True)
                )
            case "partition":
                index = 1000
            case "control":
                records = bytes(build_batch([record], control=True))
        entry = {"name": topic.name, "partition_data": [{"index": index, "records": records}]}
        values = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 100, "topic_data": [entry]}
        self.connection.request(ApiKey.PRODUCE, self.chance.randint(3, 12), values, self.routes.noted)
        return f"sends a bad batch ({mischief})"

    def finish(self) -> bool:
        return False

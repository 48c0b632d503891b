"""Visitors only read, vandals send bad batches, movers move partitions between data directories. All get answers."""

from typing import Any

from cordwood.model.errors import ErrorCode
from cordwood.records.batch import CRC_POSITION
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey
from simulation.world.exchange import Exchange
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


LATEST = -1


class EndWatcher(Client):
    def act(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None:
            return None
        index = self.chance.randrange(len(topic.partitions))
        asked = {"partition_index": index, "current_leader_epoch": -1, "timestamp": LATEST}
        values = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": topic.name, "partitions": [asked]}],
        }
        leader = self.connection_to(self.routes.leader(topic.name, index))
        leader.request(ApiKey.LIST_OFFSETS, self.stage.version(ApiKey.LIST_OFFSETS), values, self._told)
        return f"asks where {topic.name}-{index} ends"

    def finish(self) -> bool:
        return False

    def _told(self, exchange: Exchange) -> None:
        if not self.routes.failed(exchange):
            (entry,) = exchange.answer.topics[0].partitions
            if entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.routes.learn()


class DirectoryMover(Client):
    """Moves one partition of one broker at a time, now and then one that is not there, or to its present directory."""

    def act(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None:
            return None
        machine = self.chance.choice(self.stage.world.machines)
        index = self.chance.randrange(len(topic.partitions))
        path = self.chance.choice(machine.setup.data_directories)
        version = self.stage.version(ApiKey.ALTER_REPLICA_LOG_DIRS)
        values = {"dirs": [{"path": path, "topics": [{"name": topic.name, "partitions": [index]}]}]}
        self.connection_to(machine.broker_id).request(ApiKey.ALTER_REPLICA_LOG_DIRS, version, values, self.routes.noted)
        return f"moves {topic.name}-{index} at {machine} to {path}"

    def finish(self) -> bool:
        return False

"""Administrators of replicated topics: clients that create, delete and grow them, and change min.insync.replicas."""

from collections.abc import Mapping

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey
from simulation.workloads.administrators import FOR_GOOD, SET, TOPIC_RESOURCE
from simulation.world.exchange import Exchange
from simulation.world.stage import Client, Stage

NAMES = ("ash", "beech", "cedar")
MOST_PARTITIONS = 3
DURABILITY = {"ash": "disk", "beech": "os"}
"""A topic keeps its ack.durability, so that its name shows the meaning of its acknowledgements."""


class ReplicaAdministrator(Client):
    def __init__(
        self,
        stage: Stage,
        name: str,
        *,
        replicas: tuple[int, ...],
        deletes: bool,
        movers: tuple[int, ...] = (),
        fixed: Mapping[str, str] | None = None,
    ) -> None:
        """`replicas`: replication factors to choose from. `movers`: brokers to which partitions are moved. `fixed`:
        settings that all topics have."""
        super().__init__(stage, name)
        self._replicas = replicas
        self._deletes = deletes
        self._movers = movers
        self._fixed = fixed or {}

    def act(self) -> str | None:
        dice = self.chance.random()
        if dice < (0.05 if len(self.stage.topics()) > 1 else 0.5):
            return self.create_topic(self.chance.choice(NAMES))
        if dice < 0.12 and self._deletes:
            return self._delete_topic()
        if dice < 0.35 and self._movers:
            return self._move()
        if dice < 0.6:
            return self._alter()
        if dice < 0.7:
            return self._grow()
        return self._delete_records() if self._deletes else None

    def finish(self) -> bool:
        return False

    def create_topic(self, name: str) -> str:
        replicas = self.chance.choice(self._replicas)
        settings = {
            **FOR_GOOD,
            "segment.bytes": self.chance.choice(("400", "1000", "100000")),
            "min.insync.replicas": str(self.chance.randint(1, min(2, replicas))),
            "ack.durability": DURABILITY.get(name) or self.chance.choice(("disk", "os")),
            **self._fixed,
        }
        topic = {
            "name": name,
            "num_partitions": self.chance.randint(1, 2),
            "replication_factor": replicas,
            "configs": [{"name": key, "value": value} for key, value in settings.items()],
        }
        version = self.stage.version(ApiKey.CREATE_TOPICS)
        values = {"topics": [topic], "timeout_ms": 1000}
        self.connection.request(ApiKey.CREATE_TOPICS, version, values, self.routes.noted)
        return f"creates {name} with {replicas} replicas and {settings}"

    def _delete_topic(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None:
            return None
        version = self.stage.version(ApiKey.DELETE_TOPICS, 6)
        values = {"topics": [{"name": None, "topic_id": topic.topic_id}], "timeout_ms": 1000}
        self.connection.request(ApiKey.DELETE_TOPICS, version, values, self.routes.noted)
        return f"deletes {topic.name}"

    def _alter(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None:
            return None
        value = str(self.chance.randint(1, min(2, len(topic.partitions[0].replicas))))
        configs = [{"name": "min.insync.replicas", "config_operation": SET, "value": value}]
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic.name, "configs": configs}
        version = self.stage.version(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        values = {"resources": [resource]}
        self.connection.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, values, self.routes.noted)
        return f"sets min.insync.replicas={value} on {topic.name}"

    def _move(self) -> str | None:
        """Moves a partition to other replicas, as many as it has, or cancels the move under way."""
        topic = self.stage.some_topic()
        if topic is None:
            return None
        index = self.chance.randrange(len(topic.partitions))
        partition = topic.partitions[index]
        count = len(partition.replicas) - len(partition.adding)
        replicas = None if self.chance.random() < 0.1 else self.chance.sample(self._movers, count)
        entry = {"name": topic.name, "partitions": [{"partition_index": index, "replicas": replicas}]}
        version = self.stage.version(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
        values = {"timeout_ms": 1000, "topics": [entry]}
        self.connection.request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, values, self.routes.noted)
        return f"moves {topic.name}-{index} to {replicas}"

    def _grow(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None or len(topic.partitions) >= MOST_PARTITIONS:
            return None
        entry = {"name": topic.name, "count": len(topic.partitions) + 1, "assignments": None}
        version = self.stage.version(ApiKey.CREATE_PARTITIONS)
        values = {"topics": [entry], "timeout_ms": 1000}
        self.connection.request(ApiKey.CREATE_PARTITIONS, version, values, self.routes.noted)
        return f"adds a partition to {topic.name}"

    def _delete_records(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None:
            return None
        index = self.chance.randrange(len(topic.partitions))
        partition = self.stage.leading(topic.name, index)
        end = 0 if partition is None or partition.role.leading is None else partition.role.leading.high_watermark
        return self.delete_records(topic.name, index, self.chance.choice((-1, self.chance.randint(0, end), end // 3)))

    def delete_records(self, topic: str, index: int, offset: int) -> str:
        entry = {"name": topic, "partitions": [{"partition_index": index, "offset": offset}]}
        version = self.stage.version(ApiKey.DELETE_RECORDS)
        leader = self.connection_to(self.routes.leader(topic, index))
        leader.request(ApiKey.DELETE_RECORDS, version, {"topics": [entry], "timeout_ms": 1000}, self._ended)
        return f"deletes records of {topic}-{index} before {offset}"

    def _ended(self, exchange: Exchange) -> None:
        if not self.routes.failed(exchange):
            (entry,) = exchange.answer.topics[0].partitions
            if entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.routes.learn()

"""Administrators: clients that create, delete and grow topics, change settings, and delete the oldest records.

An administrator of replicated topics changes min.insync.replicas, too, and moves partitions between brokers.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from cordwood.cluster.metadata.image import TopicImage
from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey
from simulation.world.exchange import Exchange
from simulation.world.stage import Client, Stage

NAMES = ("ash", "beech", "cedar")
TOPIC_RESOURCE = 2
SET = 0

SETTINGS = {
    "ack.durability": ("disk", "os"),
    "flush.messages": ("1", "5", "9223372036854775807"),
    "flush.ms": ("100", "9223372036854775807"),
    "segment.bytes": ("300", "1000", "100000"),
    "segment.ms": ("2000", "604800000"),
    "retention.bytes": ("1500", "-1"),
    "retention.ms": ("5000", "-1"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "index.interval.bytes": ("0", "200", "4096"),
    "max.message.bytes": ("250", "1048588"),
    "file.delete.delay.ms": ("0", "1000"),
}
COMPACTION = {
    "cleanup.policy": ("compact", "compact,delete", "delete"),
    "min.cleanable.dirty.ratio": ("0", "0.5"),
    "delete.retention.ms": ("0", "86400000"),
}
FOR_GOOD = {"retention.ms": "-1"}
"""Unless a run is about retention, no record expires: then every missing record is a loss."""
DURABILITY = {"ash": "disk", "beech": "os"}
"""A replicated topic keeps its ack.durability, so that its name shows the meaning of its acknowledgements."""


class _TopicAdministrator(Client):
    most_partitions: ClassVar[int]

    def finish(self) -> bool:
        return False

    def _create(self, name: str, replicas: int, settings: Mapping[str, str]) -> None:
        topic = {
            "name": name,
            "num_partitions": self.chance.randint(1, 2),
            "replication_factor": replicas,
            "configs": [{"name": key, "value": value} for key, value in settings.items()],
        }
        self._ask(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout_ms": 1000})

    def _ask(self, key: ApiKey, values: dict[str, Any]) -> None:
        version = self.stage.version(key)
        self.connection.request(key, version, values, self.routes.noted)

    def _set(self, topic: TopicImage, settings: Mapping[str, str]) -> None:
        configs = [{"name": name, "config_operation": SET, "value": value} for name, value in settings.items()]
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic.name, "configs": configs}
        self._ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})

    def _grow(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None or len(topic.partitions) >= self.most_partitions:
            return None
        entry = {"name": topic.name, "count": len(topic.partitions) + 1, "assignments": None}
        self._ask(ApiKey.CREATE_PARTITIONS, {"topics": [entry], "timeout_ms": 1000})
        return f"adds a partition to {topic.name}"

    def _delete_records(self, *beyond: int) -> str | None:
        """Deletes records before a place in the log, or `beyond` its end by as many."""
        topic = self.stage.some_topic()
        if topic is None:
            return None
        index = self.chance.randrange(len(topic.partitions))
        partition = self.stage.leading(topic.name, index)
        end = 0 if partition is None or partition.role.leading is None else partition.role.leading.high_watermark
        places = (-1, self.chance.randint(0, end), end // 3, *(end + each for each in beyond))
        return self.delete_records(topic.name, index, self.chance.choice(places))

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


class Administrator(_TopicAdministrator):
    most_partitions = 4

    def __init__(
        self, stage: Stage, name: str, *, deletes: bool, retention: bool, compaction: bool, durability: tuple[str, ...]
    ) -> None:
        super().__init__(stage, name)
        self._deletes = deletes
        self._choices = dict(SETTINGS) | {"ack.durability": durability}
        if compaction:
            self._choices |= COMPACTION
        if not retention:
            del self._choices["retention.bytes"], self._choices["retention.ms"]

    def act(self) -> str | None:
        dice = self.chance.random()
        topics = self.stage.topics()
        if dice < (0.05 if len(topics) > 1 else 0.5):
            return self.create_topic(self.chance.choice(NAMES))
        if dice < 0.25 and self._deletes:
            return self._delete_topic()
        if dice < 0.6:
            return self._alter()
        if dice < 0.75:
            return self._grow()
        return self._delete_records(5)

    def _some_settings(self, count: int) -> dict[str, str]:
        names = self.chance.sample(sorted(self._choices), count)
        return {name: self.chance.choice(self._choices[name]) for name in names}

    def create_topic(self, name: str) -> str:
        settings = FOR_GOOD | {"segment.bytes": "1000"} | self._some_settings(self.chance.randint(0, 4))
        self._create(name, 1, settings)
        return f"creates {name} with {settings}"

    def _delete_topic(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None:
            return None
        version = self.stage.version(ApiKey.DELETE_TOPICS)
        if version < 6:
            values: dict[str, object] = {"topic_names": [topic.name]}
        elif self.chance.random() < 0.5:
            values = {"topics": [{"name": None, "topic_id": topic.topic_id}]}
        else:
            values = {"topics": [{"name": topic.name}]}
        values["timeout_ms"] = 1000
        self.connection.request(ApiKey.DELETE_TOPICS, version, values, self.routes.noted)
        return f"deletes {topic.name}"

    def _alter(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None:
            return None
        settings = self._some_settings(self.chance.randint(1, 2))
        self._set(topic, settings)
        return f"sets {settings} on {topic.name}"


class ReplicaAdministrator(_TopicAdministrator):
    most_partitions = 3

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

    def create_topic(self, name: str) -> str:
        replicas = self.chance.choice(self._replicas)
        settings = {
            **FOR_GOOD,
            "segment.bytes": self.chance.choice(("400", "1000", "100000")),
            "min.insync.replicas": str(self.chance.randint(1, min(2, replicas))),
            "ack.durability": DURABILITY.get(name) or self.chance.choice(("disk", "os")),
            **self._fixed,
        }
        self._create(name, replicas, settings)
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
        self._set(topic, {"min.insync.replicas": value})
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
        self._ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, {"timeout_ms": 1000, "topics": [entry]})
        return f"moves {topic.name}-{index} to {replicas}"

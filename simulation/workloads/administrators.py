"""Administrators: clients that create, delete and grow topics, change settings, and delete the oldest records."""

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey
from simulation.world.exchange import Exchange
from simulation.world.stage import Client, Stage

NAMES = ("ash", "beech", "cedar")
MOST_PARTITIONS = 4
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


class Administrator(Client):
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
        return self._delete_records()

    def finish(self) -> bool:
        return False

    def _some_settings(self, count: int) -> dict[str, str]:
        names = self.chance.sample(sorted(self._choices), count)
        return {name: self.chance.choice(self._choices[name]) for name in names}

    def create_topic(self, name: str) -> str:
        settings = FOR_GOOD | {"segment.bytes": "1000"} | self._some_settings(self.chance.randint(0, 4))
        topic = {
            "name": name,
            "num_partitions": self.chance.randint(1, 2),
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in settings.items()],
        }
        version = self.stage.version(ApiKey.CREATE_TOPICS)
        self.connection.request(
            ApiKey.CREATE_TOPICS, version, {"topics": [topic], "timeout_ms": 1000}, self.routes.noted
        )
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
        configs = [{"name": name, "config_operation": SET, "value": value} for name, value in settings.items()]
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic.name, "configs": configs}
        version = self.stage.version(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        values = {"resources": [resource]}
        self.connection.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, values, self.routes.noted)
        return f"sets {settings} on {topic.name}"

    def _grow(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None or len(topic.partitions) >= MOST_PARTITIONS:
            return None
        entry = {"name": topic.name, "count": len(topic.partitions) + 1, "assignments": None}
        version = self.stage.version(ApiKey.CREATE_PARTITIONS)
        self.connection.request(
            ApiKey.CREATE_PARTITIONS, version, {"topics": [entry], "timeout_ms": 1000}, self.routes.noted
        )
        return f"adds a partition to {topic.name}"

    def _delete_records(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None:
            return None
        index = self.chance.randrange(len(topic.partitions))
        partition = self.stage.leading(topic.name, index)
        end = 0 if partition is None or partition.role.leading is None else partition.role.leading.high_watermark
        offset = self.chance.choice((-1, self.chance.randint(0, end), end // 3, end + 5))
        entry = {"name": topic.name, "partitions": [{"partition_index": index, "offset": offset}]}
        version = self.stage.version(ApiKey.DELETE_RECORDS)
        leader = self.connection_to(self.routes.leader(topic.name, index))
        leader.request(ApiKey.DELETE_RECORDS, version, {"topics": [entry], "timeout_ms": 1000}, self._ended)
        return f"deletes records of {topic.name}-{index} before {offset}"

    def _ended(self, exchange: Exchange) -> None:
        if not self.routes.failed(exchange):
            (entry,) = exchange.answer.topics[0].partitions
            if entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.routes.learn()

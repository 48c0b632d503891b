"""Creates the topics that a pipeline writes before it begins, as an ordinary Kafka client.

A new output topic has as many partitions as the widest input, so that records are written and read on as parallel as
they were read. A topic that an edition writes beside the live one has the partitions and settings of the topic that it
will replace: the same key goes to the partition of the same number, and a compacted topic stays compacted.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import NotFound, Refusal

_TIMEOUT_S: Final = 30.0
_QUARANTINE_SETTINGS: Final = {"retention.ms": "-1", "max.message.bytes": str(100 << 20)}
"""Quarantined records stay until somebody looks at them. Every record that was read must fit: one that came compressed
may be many times larger than its topic allows, and a record that does not fit would stop the pipeline for good."""


def check_inputs(bootstrap_servers: str, pipeline: Pipeline) -> None:
    """Raises NotFound for input topics that do not exist, before anything of the pipeline is made."""
    there = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=_TIMEOUT_S).topics
    missing = [topic.name for topic in pipeline.inputs.values() if topic.name not in there]
    if missing:
        many = len(missing) > 1
        raise NotFound(
            f"{pipeline.name} reads {', '.join(missing)}, and {bootstrap_servers} has no such topic{'s' * many}",
            f"`cordwood topic create {missing[0]}` creates it; `cordwood topic list` shows what there is",
        )


def ensure_topics(
    bootstrap_servers: str, topics: Mapping[str, str], quarantine: str, inputs: Sequence[str]
) -> list[str]:
    """Makes missing topics, and returns their names. `topics` is by the declared topic, whose partitions and settings a
    new one gets."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    there = admin.list_topics(timeout=_TIMEOUT_S).topics
    widest = max((len(there[name].partitions) for name in inputs if name in there), default=-1)
    missing = []
    for declared, name in topics.items():
        if name not in there:
            partitions = len(there[declared].partitions) if declared in there else widest
            settings = _settings_of(admin, declared) if declared in there else {}
            missing.append(NewTopic(name, num_partitions=partitions, config=settings))
    if quarantine not in there:
        missing.append(NewTopic(quarantine, num_partitions=-1, config=_QUARANTINE_SETTINGS))
    if not missing:
        return []
    for name, answer in admin.create_topics(missing, operation_timeout=_TIMEOUT_S).items():
        try:
            answer.result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise Refusal(f"the topic {name} cannot be made: {error.args[0].str()}") from error
    names = [topic.topic for topic in missing]
    _await(admin, names)
    return names


def _settings_of(admin: AdminClient, topic: str) -> dict[str, str]:
    """The settings of a topic that are not defaults."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found: Mapping[str, Any] = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in found.items() if entry.source == own and entry.value is not None}


def _await(admin: AdminClient, names: list[str]) -> None:
    """Waits until new topics are known: on a cluster that takes a moment."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        there = admin.list_topics(timeout=_TIMEOUT_S).topics
        if all(name in there and there[name].error is None for name in names):
            return
        time.sleep(0.05)

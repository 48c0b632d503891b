"""Topics that a pipeline writes: made before it begins, as an ordinary Kafka client.

A new output topic has as many partitions as the widest input: what was read in parallel can be written and read on in
parallel. A topic that an edition writes beside the live one has as many partitions as the one whose place it will take,
so that the same key goes to the partition of the same number, and the same settings, so that a compacted one stays
compacted.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic

from cordwood.pipelines.definition import Pipeline
from cordwood.pipelines.errors import NotFound, Refusal

_TIMEOUT_S: Final = 30.0
_QUARANTINE_SETTINGS: Final = {"retention.ms": "-1", "max.message.bytes": str(100 << 20)}
"""What was set aside stays until somebody looks at it. Whatever was read can be set aside: a record that came
compressed may be many times larger than its topic allows, and one that does not fit would stop the pipeline for good.
"""


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
    """Makes what is missing, and returns the names. `topics` are by the declared name, whose likeness they are."""
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
    """What was set for this topic, and is not a default."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found: Mapping[str, Any] = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in found.items() if entry.source == own and entry.value is not None}


def _await(admin: AdminClient, names: list[str]) -> None:
    """On a cluster a new topic is known everywhere only after a moment."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        there = admin.list_topics(timeout=_TIMEOUT_S).topics
        if all(name in there and there[name].error is None for name in names):
            return
        time.sleep(0.05)

"""Topics that a pipeline writes: made before it begins, as an ordinary Kafka client.

A topic that an edition writes beside the live one has as many partitions as the one that it will take the place of, so
that the same key goes to the partition of the same number.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.pipelines.errors import Refusal

_TIMEOUT_S: Final = 30.0


def ensure_topics(bootstrap_servers: str, topics: Mapping[str, str], others: Iterable[str]) -> list[str]:
    """Makes what is missing, and returns the names. `topics` are by the declared name, whose size they take."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    there = admin.list_topics(timeout=_TIMEOUT_S).topics
    sizes: dict[str, int] = {}
    for declared, name in topics.items():
        sizes[name] = len(there[declared].partitions) if declared in there else -1
    for name in others:
        sizes[name] = -1
    missing = [NewTopic(name, num_partitions=size) for name, size in sizes.items() if name not in there]
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


def _await(admin: AdminClient, names: list[str]) -> None:
    """On a cluster a new topic is known everywhere only after a moment."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        there = admin.list_topics(timeout=_TIMEOUT_S).topics
        if all(name in there and there[name].error is None for name in names):
            return
        time.sleep(0.05)

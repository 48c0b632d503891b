"""Topics that a pipeline makes for itself, on a real broker."""

import uuid

from confluent_kafka.admin import AdminClient, ConfigResource
from tests.conftest import MakeTopic, RunningBroker

from cordwood.pipelines.topics import ensure_topics


def setting(admin: AdminClient, topic: str, name: str) -> str | None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    value: str | None = admin.describe_configs([resource])[resource].result(30)[name].value
    return value


def test_a_topic_beside_the_live_one_is_its_likeness(
    broker: RunningBroker, admin: AdminClient, make_topic: MakeTopic
) -> None:
    declared = make_topic(partitions=3, **{"cleanup.policy": "compact"})
    other, quarantine = f"new-{uuid.uuid4().hex[:8]}", f"aside-{uuid.uuid4().hex[:8]}"
    topics = {declared: f"{declared}.v2", other: other}
    assert ensure_topics(broker.bootstrap, topics, quarantine) == [f"{declared}.v2", other, quarantine]
    there = admin.list_topics(timeout=30).topics
    assert len(there[f"{declared}.v2"].partitions) == 3
    assert setting(admin, f"{declared}.v2", "cleanup.policy") == "compact"
    assert setting(admin, other, "cleanup.policy") == "delete"
    assert setting(admin, quarantine, "retention.ms") == "-1"
    assert ensure_topics(broker.bootstrap, topics, quarantine) == [], "they are there now"

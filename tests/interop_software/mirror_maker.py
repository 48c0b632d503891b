"""MirrorMaker 2 from one broker to another: records, settings of topics, positions of groups, and no stack traces."""

from collections.abc import Mapping

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.interop_software.software import java_command
from tests.interop_software.stage import Stage, Started, committed_values, make_topic, until

RECORDS = 500
_INTERNAL = (
    "offset.storage",
    "status.storage",
    "config.storage",
    "checkpoints.topic",
    "heartbeats.topic",
    "offset-syncs.topic",
)


def mirror(stage: Stage) -> None:
    source, target = stage.broker("source"), stage.broker("target")
    make_topic(source.bootstrap, "orders", 2, compression_type="zstd", retention_ms="3600000")
    producer = Producer({"bootstrap.servers": source.bootstrap, "compression.type": "lz4"})
    for number in range(RECORDS):
        producer.produce("orders", f"order {number}", key=str(number), partition=number % 2)
    assert producer.flush(30) == 0
    _read_half(source.bootstrap)
    settings = {
        **_settings(source.bootstrap, target.bootstrap),
        "groups": "readers",
        "sync.topic.configs.interval.seconds": "3",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "2",
        "emit.checkpoints.interval.seconds": "2",
        "offset.lag.max": "0",
    }
    running = _start(stage, settings)
    until(lambda: len(committed_values(target.bootstrap, "source.orders", 2)) >= RECORDS, what="the mirrored records")
    mirrored = committed_values(target.bootstrap, "source.orders", 2)
    assert sorted(mirrored) == sorted((b"%d" % number, b"order %d" % number) for number in range(RECORDS))
    until(lambda: "No ACL authorizer is configured" in running.output(), what="the answer about ACLs")
    resource = ConfigResource(ConfigResource.Type.TOPIC, "source.orders")
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    until(
        lambda: admin.describe_configs([resource])[resource].result(120)["compression.type"].value == "zstd",
        what="the topic's settings",
    )
    positions = until(lambda: _positions(target.bootstrap), what="the group's positions")
    # MirrorMaker knows the offsets of both sides for some records only, and takes one that is not too late. In a
    # partition where it knows none before the group's position it gives none.
    assert positions.keys() <= {0, 1}
    assert all(0 <= position <= RECORDS // 4 for position in positions.values()), positions
    running.stop()
    assert "AclBinding" not in running.output()
    assert "UnsupportedVersionException" not in running.output()


def rules(stage: Stage) -> None:
    """MirrorMaker logs in at both brokers over TLS, and copies the rules of its topics; those who may read there may
    read here, and nobody may write the copies."""
    source, target = stage.secure_broker("source"), stage.secure_broker("target")
    make_topic(source.bootstrap, "orders", security=source.admin.security)
    producer = Producer({"bootstrap.servers": source.bootstrap, **source.admin.security})
    producer.produce("orders", "order")
    assert producer.flush(30) == 0
    for added in (
        ("bob", "--operation", "Read", "--topic", "orders"),
        ("bob", "--operation", "Read", "--topic", "payroll", "--deny"),
        ("carol", "--operation", "Write", "--topic", "orders"),
    ):
        source.cordwood("acl", "add", *added)
    settings = _settings(source.bootstrap, target.bootstrap)
    for cluster, broker in (("source", source), ("target", target)):
        lines = broker.admin.java.read_text().splitlines()
        settings |= {f"{cluster}.{name}": value for name, _, value in (line.partition("=") for line in lines)}
    running = _start(stage, settings)

    def copied() -> list[tuple[str, ...]]:
        found = target.cordwood.json("acl", "list")
        return [tuple(each[field] for field in ("principal", "permission", "operation", "name")) for each in found]

    until(lambda: copied() == [("User:bob", "allow", "Read", "source.orders")], what="the copied rule")
    until(
        lambda: committed_values(target.bootstrap, "source.orders", security=target.admin.security),
        what="the mirrored record",
    )
    running.stop()


def _settings(source: str, target: str) -> dict[str, str]:
    return {
        "clusters": "source, target",
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "topics": "orders",
        "replication.factor": "1",
        **{f"{name}.replication.factor": "1" for name in _INTERNAL},
        "refresh.topics.interval.seconds": "3",
        "sync.topic.acls.interval.seconds": "3",
    }


def _start(stage: Stage, settings: Mapping[str, str]) -> Started:
    properties = stage.path / "mirror.properties"
    properties.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    return stage.start("mirror", java_command("org.apache.kafka.connect.mirror.MirrorMaker", str(properties)))


def _read_half(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    until(lambda: consumer.poll(0.2) is not None, what="the first record")
    consumer.commit(
        offsets=[TopicPartition("orders", partition, RECORDS // 4) for partition in (0, 1)], asynchronous=False
    )
    consumer.close()


def _positions(bootstrap: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("readers")]).values()
    return {each.partition: each.offset for each in found.result(120).topic_partitions if each.topic == "source.orders"}

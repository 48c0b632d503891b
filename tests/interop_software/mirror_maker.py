"""MirrorMaker 2 from one broker to another: records, settings of topics, positions of groups, and no stack traces."""

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.interop_software.software import java_command
from tests.interop_software.stage import Stage, committed_values, make_topic, until

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
        "clusters": "source, target",
        "source.bootstrap.servers": source.bootstrap,
        "target.bootstrap.servers": target.bootstrap,
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "topics": "orders",
        "groups": "readers",
        "replication.factor": "1",
        **{f"{name}.replication.factor": "1" for name in _INTERNAL},
        "refresh.topics.interval.seconds": "3",
        "sync.topic.configs.interval.seconds": "3",
        "sync.topic.acls.interval.seconds": "3",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "2",
        "emit.checkpoints.interval.seconds": "2",
        "offset.lag.max": "0",
    }
    properties = stage.path / "mirror.properties"
    properties.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    running = stage.start("mirror", java_command("org.apache.kafka.connect.mirror.MirrorMaker", str(properties)))
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

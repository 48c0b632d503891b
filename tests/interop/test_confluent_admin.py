"""Administration with confluent-kafka's AdminClient."""

import time
import uuid
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_END,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from tests.conftest import MakeTopic, RunningBroker, await_topic
from tests.deadline import eventually
from tests.interop.confluent_clients import produce_all, read_to_end

pytestmark = pytest.mark.landing


def fresh_name() -> str:
    return f"admin-{uuid.uuid4().hex[:12]}"


def create(admin: AdminClient, name: str, partitions: int = 1, **kwargs: Any) -> None:
    admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)], **kwargs)[name].result(60)
    if not kwargs.get("validate_only"):
        await_topic(admin, name, partitions)


def error_code(failure: pytest.ExceptionInfo[KafkaException]) -> int:
    code: int = failure.value.args[0].code()
    return code


def topic_configs(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(60)
    return found


class TestTopics:
    def test_create_describe_delete(self, admin: AdminClient) -> None:
        name = fresh_name()
        create(admin, name, partitions=3, operation_timeout=20)
        description = admin.describe_topics(TopicCollection([name]))[name].result(60)
        assert description.name == name
        assert not description.is_internal
        assert [partition.id for partition in description.partitions] == [0, 1, 2]
        for partition in description.partitions:
            assert partition.leader is not None
            assert [node.id for node in partition.replicas] == [partition.leader.id]
            assert [node.id for node in partition.isr] == [partition.leader.id]
        admin.delete_topics([name], operation_timeout=20)[name].result(60)
        eventually(lambda: name not in admin.list_topics(timeout=60).topics, what="the topic's absence")

    def test_two_topics_have_two_ids(self, admin: AdminClient) -> None:
        names = [fresh_name(), fresh_name()]
        for name in names:
            create(admin, name, operation_timeout=20)
        found = admin.describe_topics(TopicCollection(names))
        ids = {str(found[name].result(60).topic_id) for name in names}
        assert len(ids) == 2

    def test_a_topic_created_again_under_the_same_name_is_empty(
        self, admin: AdminClient, broker: RunningBroker
    ) -> None:
        name = fresh_name()
        create(admin, name, operation_timeout=20)
        produce_all(Producer({"bootstrap.servers": broker.bootstrap}), [{"topic": name, "value": b"old"}])
        admin.delete_topics([name], operation_timeout=20)[name].result(60)
        eventually(lambda: name not in admin.list_topics(timeout=60).topics, what="the topic's absence")

        def created() -> bool:
            try:
                create(admin, name, operation_timeout=20)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        eventually(created, what="the name's release")
        assert read_to_end(broker.bootstrap, name) == []

    def test_validate_only_creates_nothing(self, admin: AdminClient) -> None:
        name = fresh_name()
        create(admin, name, validate_only=True)
        assert name not in admin.list_topics(timeout=60).topics

    def test_a_name_that_is_taken(self, admin: AdminClient, topic: str) -> None:
        with pytest.raises(KafkaException) as failure:
            create(admin, topic)
        assert error_code(failure) == KafkaError.TOPIC_ALREADY_EXISTS

    @pytest.mark.parametrize("name", ["with space", "ü", "a" * 250, "..", "a/b"])
    def test_a_name_that_is_not_one(self, admin: AdminClient, name: str) -> None:
        with pytest.raises(KafkaException) as failure:
            create(admin, name)
        assert error_code(failure) == KafkaError.TOPIC_EXCEPTION

    @pytest.mark.parametrize(
        ("config", "code"),
        [
            ({"no.such.config": "1"}, KafkaError.INVALID_CONFIG),
            ({"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
            ({"cleanup.policy": "burn"}, KafkaError.INVALID_CONFIG),
        ],
    )
    def test_a_config_that_is_not_one(self, admin: AdminClient, config: dict[str, str], code: int) -> None:
        name = fresh_name()
        with pytest.raises(KafkaException) as failure:
            admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1, config=config)])[name].result(
                30
            )
        assert error_code(failure) == code

    def test_more_replicas_than_brokers(self, admin: AdminClient) -> None:
        name = fresh_name()
        with pytest.raises(KafkaException) as failure:
            admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=3)])[name].result(60)
        assert error_code(failure) == KafkaError.INVALID_REPLICATION_FACTOR

    def test_replicas_assigned_by_hand(self, admin: AdminClient) -> None:
        name = fresh_name()
        node = next(iter(admin.list_topics(timeout=60).brokers))
        new = NewTopic(name, num_partitions=2, replica_assignment=[[node], [node]])
        admin.create_topics([new], operation_timeout=20)[name].result(60)
        await_topic(admin, name, 2)

    def test_deleting_what_is_not_there(self, admin: AdminClient) -> None:
        name = fresh_name()
        with pytest.raises(KafkaException) as failure:
            admin.delete_topics([name])[name].result(60)
        assert error_code(failure) == KafkaError.UNKNOWN_TOPIC_OR_PART

    def test_describing_what_is_not_there(self, admin: AdminClient) -> None:
        name = fresh_name()
        with pytest.raises(KafkaException) as failure:
            admin.describe_topics(TopicCollection([name]))[name].result(60)
        assert error_code(failure) == KafkaError.UNKNOWN_TOPIC_OR_PART

    def test_a_hundred_topics_at_once(self, admin: AdminClient) -> None:
        names = [fresh_name() for _ in range(100)]
        for future in admin.create_topics(
            [NewTopic(name, num_partitions=1, replication_factor=1) for name in names], operation_timeout=30
        ).values():
            future.result(60)
        eventually(lambda: set(names) <= set(admin.list_topics(timeout=60).topics), what="100 topics")
        for future in admin.delete_topics(names, operation_timeout=30).values():
            future.result(60)


class TestPartitions:
    def test_partitions_are_added_and_the_old_ones_keep_their_records(
        self, admin: AdminClient, broker: RunningBroker, topic: str
    ) -> None:
        client = Producer({"bootstrap.servers": broker.bootstrap})
        produce_all(client, [{"topic": topic, "value": b"old"}])
        admin.create_partitions([NewPartitions(topic, 4)], operation_timeout=20)[topic].result(60)
        await_topic(admin, topic, 4)
        writer = Producer({"bootstrap.servers": broker.bootstrap})
        produce_all(writer, [{"topic": topic, "value": b"new", "partition": p} for p in range(1, 4)])
        read = read_to_end(broker.bootstrap, topic, range(4))
        assert sorted((m.partition(), m.value()) for m in read) == [(0, b"old"), (1, b"new"), (2, b"new"), (3, b"new")]

    def test_partitions_are_never_taken_away(self, admin: AdminClient, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=3)
        for count in (2, 3):
            with pytest.raises(KafkaException) as failure:
                admin.create_partitions([NewPartitions(topic, count)])[topic].result(60)
            assert error_code(failure) == KafkaError.INVALID_PARTITIONS


class TestConfigs:
    def test_defaults_are_kafkas_and_say_where_they_come_from(self, admin: AdminClient, make_topic: MakeTopic) -> None:
        topic = make_topic(**{"retention.ms": "12345"})
        configs = topic_configs(admin, topic)
        assert configs["retention.ms"].value == "12345"
        source: object = configs["retention.ms"].source
        assert source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        assert not configs["retention.ms"].is_default
        defaults = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "max.message.bytes": "1048588",
            "message.timestamp.type": "CreateTime",
            "min.insync.replicas": "1",
            "retention.bytes": "-1",
            "segment.bytes": "1073741824",
        }
        assert {name: configs[name].value for name in defaults} == defaults
        # Kafka 4.1 sets min.insync.replicas for the whole cluster by itself, so there it is no default.
        assert all(configs[name].is_default for name in defaults if name != "min.insync.replicas")

    def test_incremental_set_and_delete(self, admin: AdminClient, make_topic: MakeTopic) -> None:
        topic = make_topic(**{"retention.ms": "12345"})

        def change(name: str, value: str | None, operation: AlterConfigOpType) -> None:
            entry = ConfigEntry(name, value, incremental_operation=operation)
            resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(60)

        def shown(name: str) -> str | None:
            return topic_configs(admin, topic)[name].value

        change("segment.bytes", "1048576", AlterConfigOpType.SET)
        eventually(lambda: shown("segment.bytes"), to_be="1048576", what="the new value")
        assert shown("retention.ms") == "12345"
        change("retention.ms", None, AlterConfigOpType.DELETE)
        eventually(lambda: shown("retention.ms"), to_be="604800000", what="the default")
        assert shown("segment.bytes") == "1048576"
        change("cleanup.policy", "compact", AlterConfigOpType.APPEND)
        eventually(lambda: shown("cleanup.policy"), to_be="delete,compact", what="the longer list")
        change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
        eventually(lambda: shown("cleanup.policy"), to_be="compact", what="the shorter list")

    def test_a_value_that_is_not_valid_changes_nothing(self, admin: AdminClient, topic: str) -> None:
        entry = ConfigEntry("retention.ms", "-7", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        with pytest.raises(KafkaException) as failure:
            admin.incremental_alter_configs([resource])[resource].result(60)
        assert error_code(failure) == KafkaError.INVALID_CONFIG
        assert topic_configs(admin, topic)["retention.ms"].value == "604800000"

    @pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
    def test_the_old_alter_replaces_all(self, admin: AdminClient, make_topic: MakeTopic) -> None:
        topic = make_topic(**{"retention.ms": "12345", "segment.bytes": "1048576"})
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"segment.bytes": "2097152"})
        admin.alter_configs([resource])[resource].result(60)
        eventually(
            lambda: {n: topic_configs(admin, topic)[n].value for n in ("retention.ms", "segment.bytes")},
            to_be={"retention.ms": "604800000", "segment.bytes": "2097152"},
            what="the replaced configuration",
        )

    def test_a_new_limit_is_enforced_at_once(self, admin: AdminClient, broker: RunningBroker, topic: str) -> None:
        entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)
        eventually(lambda: topic_configs(admin, topic)["max.message.bytes"].value, to_be="1000", what="the new limit")
        with pytest.raises(KafkaException) as failure:
            produce_all(Producer({"bootstrap.servers": broker.bootstrap}), [{"topic": topic, "value": b"x" * 5000}])
        assert error_code(failure) == KafkaError.MSG_SIZE_TOO_LARGE

    def test_the_brokers_own(self, admin: AdminClient) -> None:
        node = next(iter(admin.list_topics(timeout=60).brokers))
        resource = ConfigResource(ConfigResource.Type.BROKER, str(node))
        configs = admin.describe_configs([resource])[resource].result(60)
        assert configs["node.id"].value == str(node)
        assert configs["log.retention.ms"].name == "log.retention.ms"
        assert configs["node.id"].is_read_only

    def test_of_a_topic_that_does_not_exist(self, admin: AdminClient) -> None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, fresh_name())
        with pytest.raises(KafkaException) as failure:
            admin.describe_configs([resource])[resource].result(60)
        assert error_code(failure) == KafkaError.UNKNOWN_TOPIC_OR_PART


class TestRecordsAndOffsets:
    STAMP_MS = int(time.time() * 1000) - 3_600_000  # an hour ago: retention must not find it old

    @pytest.fixture
    def filled(self, broker: RunningBroker, topic: str) -> str:
        client = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        stamps = [0, 1000, 9000, 2000, 3000]
        for n, stamp in enumerate(stamps):
            produce_all(client, [{"topic": topic, "value": f"v{n}", "timestamp": self.STAMP_MS + stamp}])
        return topic

    def offsets(self, admin: AdminClient, topic: str, spec: OffsetSpec) -> Any:
        partition = TopicPartition(topic, 0)
        return admin.list_offsets({partition: spec})[partition].result(60)

    def test_list_offsets_with_special_timestamps(self, admin: AdminClient, filled: str) -> None:
        assert self.offsets(admin, filled, OffsetSpec.earliest()).offset == 0
        assert self.offsets(admin, filled, OffsetSpec.latest()).offset == 5
        newest = self.offsets(admin, filled, OffsetSpec.max_timestamp())
        assert (newest.offset, newest.timestamp) == (2, self.STAMP_MS + 9000)
        found = self.offsets(admin, filled, OffsetSpec.for_timestamp(self.STAMP_MS + 1500))
        assert (found.offset, found.timestamp) == (2, self.STAMP_MS + 9000)
        assert self.offsets(admin, filled, OffsetSpec.for_timestamp(self.STAMP_MS + 9001)).offset == -1

    def test_list_offsets_of_an_empty_partition(self, admin: AdminClient, topic: str) -> None:
        assert self.offsets(admin, topic, OffsetSpec.earliest()).offset == 0
        assert self.offsets(admin, topic, OffsetSpec.latest()).offset == 0
        assert self.offsets(admin, topic, OffsetSpec.max_timestamp()).offset == -1
        assert self.offsets(admin, topic, OffsetSpec.for_timestamp(0)).offset == -1

    def test_records_are_deleted_and_the_rest_keep_their_offsets(
        self, admin: AdminClient, broker: RunningBroker, filled: str
    ) -> None:
        partition = TopicPartition(filled, 0, 3)
        deleted = admin.delete_records([partition])[partition].result(60)
        assert deleted.low_watermark == 3
        assert self.offsets(admin, filled, OffsetSpec.earliest()).offset == 3
        read = read_to_end(broker.bootstrap, filled)
        assert [(message.offset(), message.value()) for message in read] == [(3, b"v3"), (4, b"v4")]
        produce_all(Producer({"bootstrap.servers": broker.bootstrap}), [{"topic": filled, "value": b"v5"}])
        assert self.offsets(admin, filled, OffsetSpec.latest()).offset == 6

    def test_all_records_are_deleted(self, admin: AdminClient, broker: RunningBroker, filled: str) -> None:
        partition = TopicPartition(filled, 0, OFFSET_END)
        assert admin.delete_records([partition])[partition].result(60).low_watermark == 5
        assert read_to_end(broker.bootstrap, filled) == []
        (acked,) = produce_all(Producer({"bootstrap.servers": broker.bootstrap}), [{"topic": filled, "value": b"v5"}])
        assert acked.offset() == 5

    def test_deleting_beyond_the_end_is_out_of_range(self, admin: AdminClient, filled: str) -> None:
        partition = TopicPartition(filled, 0, 6)
        with pytest.raises(KafkaException) as failure:
            admin.delete_records([partition])[partition].result(60)
        assert error_code(failure) == KafkaError.OFFSET_OUT_OF_RANGE

    def test_positions_of_a_group_are_altered_and_listed(self, admin: AdminClient, filled: str) -> None:
        group = f"group-{uuid.uuid4().hex[:8]}"
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(filled, 0, 4)])
        admin.alter_consumer_group_offsets([wanted])[group].result(60)
        listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
        assert [(p.topic, p.partition, p.offset) for p in listed.topic_partitions] == [(filled, 0, 4)]


class TestCluster:
    def test_describe_cluster(self, admin: AdminClient, broker: RunningBroker) -> None:
        cluster = admin.describe_cluster().result(60)
        assert cluster.cluster_id
        assert [(node.host, node.port) for node in cluster.nodes] == [(broker.host, broker.port)]
        assert cluster.controller is not None
        assert cluster.controller.id == cluster.nodes[0].id

    def test_the_cluster_has_one_id(self, broker: RunningBroker) -> None:
        ids = {
            AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).cluster_id for _ in range(2)
        }
        assert len(ids) == 1
        assert None not in ids

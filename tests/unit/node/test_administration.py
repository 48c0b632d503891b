"""Topics come, grow, change and go; settings are seen and changed; producers and disks are described."""

import gc
from typing import Any

import pytest
from simulation.world.slow_store import Fate
from simulation.world.world import World
from tests.unit.node.speaking import (
    BROKER,
    DELETE,
    SET,
    TOPIC,
    alter_topic,
    batch_of,
    create_topic,
    delete_topic,
    error,
    fetch,
    fill,
    only,
    produce,
    values_in,
)

from cordwood.cluster.stores.interface import Listing, StoreFailure
from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from cordwood.node.partitions.partition import Partition
from cordwood.wire.apis import ApiKey


def new_topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> dict[str, Any]:
    named = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, "configs": named}


def create(world: World, *topics: dict[str, Any], version: int = 7, **options: Any) -> list[tuple[str, str]]:
    answer = world.ask(ApiKey.CREATE_TOPICS, version, topics=list(topics), timeout_ms=1000, **options)
    return [(topic.name, error(topic.error_code)) for topic in answer.topics]


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_in_every_version_each_with_its_own_outcome(world: World, version: int) -> None:
    outcome = create(
        world,
        new_topic("orders", 3),
        new_topic("no spaces"),
        new_topic("crowd", replicas=2),
        new_topic("odd", segment_bytes="small"),
        version=version,
    )
    assert outcome == [
        ("orders", "NONE"),
        ("no spaces", "INVALID_TOPIC_EXCEPTION"),
        ("crowd", "INVALID_REPLICATION_FACTOR"),
        ("odd", "INVALID_CONFIG"),
    ]
    assert create(world, new_topic("orders"), version=version) == [("orders", "TOPIC_ALREADY_EXISTS")]
    assert len(world.node.hosted.topics["orders"]) == 3


def test_validate_only_creates_nothing(world: World) -> None:
    assert create(world, new_topic("orders"), validate_only=True) == [("orders", "NONE")]
    assert "orders" not in world.node.hosted.topics


def test_a_created_topic_takes_records_before_its_creation_is_answered(world: World) -> None:
    topic = create_topic(world)
    assert produce(world, topic, batch_of(world), version=13)[0].error_code == 0


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name_and_by_id(world: World, version: int) -> None:
    orders, _ = create_topic(world), create_topic(world, "returns")
    if version >= 6:
        topics = [{"name": None, "topic_id": orders.topic_id}, {"name": "returns"}, {"name": "nowhere"}]
        answer = world.ask(ApiKey.DELETE_TOPICS, version, topics=topics, timeout_ms=1000)
    else:
        names = ["orders", "returns", "nowhere"]
        answer = world.ask(ApiKey.DELETE_TOPICS, version, topic_names=names, timeout_ms=1000)
    assert [(each.name, error(each.error_code)) for each in answer.responses] == [
        ("orders", "NONE"),
        ("returns", "NONE"),
        ("nowhere", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert world.node.hosted.topics == {}


def test_an_unknown_id_is_told_with_that_id(world: World) -> None:
    topics = [{"name": None, "topic_id": TopicId(int=4)}]
    (answer,) = world.ask(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout_ms=1000).responses
    assert (error(answer.error_code), answer.topic_id) == ("UNKNOWN_TOPIC_ID", TopicId(int=4))


def test_the_objects_of_a_deleted_topic_go_without_a_search_for_garbage(world: World) -> None:
    """Such searches are seldom: until one came, a broker in memory kept the records of deleted topics."""
    create_topic(world)
    fill(world, "orders", b"a")
    gc.collect()
    gc.disable()
    try:
        delete_topic(world, "orders")
        world.advance(world.node.image.settings.topic_settings.file_delete_delay_ms)
        kept = [each for each in gc.get_objects() if isinstance(each, Partition) and each.name.topic == "orders"]
        assert len(kept) == 0
    finally:
        gc.enable()


def test_a_deleted_topic_frees_its_disk_and_a_new_one_of_its_name_is_empty(world: World) -> None:
    create_topic(world)
    fill(world, "orders", b"a", b"b")
    assert world.disk.exists("/data/orders-0")
    delete_topic(world, "orders")
    world.advance(world.node.image.settings.topic_settings.file_delete_delay_ms)
    assert [name for name in world.disk.list("/data") if "orders" in name] == []
    create_topic(world)
    assert fetch(world, ("orders", 0, 0)).responses[0].partitions[0].high_watermark == 0
    fill(world, "orders", b"c")
    world.lose_power()
    world.start()
    assert values_in(only(fetch(world, ("orders", 0, 0)))) == [b"c"]


def test_a_topic_deleted_while_the_broker_was_dying_is_gone_after_the_restart(world: World) -> None:
    create_topic(world)
    fill(world, "orders", b"a")
    world.connect().request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["orders"], "timeout_ms": 1000})
    world.do(dict(world.steps())["request"])
    assert world.life is not None
    while not world.life.store.calls:
        world.life.loop.step()
    world.life.store.end_next_call()
    world.life.loop.step()
    assert "orders" in world.node.hosted.topics
    world.kill()
    world.start()
    assert "orders" not in world.node.hosted.topics
    assert not world.node.logs.has_log(TopicPartition("orders", 0))


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_and_never_taken_away(world: World, version: int) -> None:
    create_topic(world, partitions=2)
    for count, expected in ((4, "NONE"), (4, "INVALID_PARTITIONS"), (1, "INVALID_PARTITIONS")):
        topics = [{"name": "orders", "count": count, "assignments": None}]
        answer = world.ask(ApiKey.CREATE_PARTITIONS, version, topics=topics, timeout_ms=1000)
        assert error(answer.results[0].error_code) == expected
    fill(world, "orders", b"a", index=3)


def test_a_store_that_fails_is_told_and_the_broker_goes_on(world: World) -> None:
    exchange = world.connect().request(ApiKey.CREATE_TOPICS, 7, {"topics": [new_topic("orders")], "timeout_ms": 1000})
    world.do(dict(world.steps())["request"])
    assert world.life is not None
    while not world.life.store.calls:
        world.life.loop.step()
    world.life.store.next_fate = Fate.REFUSED
    world.life.store.end_next_call()
    world.settle()
    (topic,) = exchange.answer.topics
    assert (error(topic.error_code), topic.topic_id) == ("UNKNOWN_SERVER_ERROR", None)
    create_topic(world)
    assert ZERO_TOPIC_ID.int == 0


def test_a_change_whose_answer_was_lost_is_looked_up_and_told_as_made(world: World) -> None:
    exchange = world.connect().request(ApiKey.CREATE_TOPICS, 7, {"topics": [new_topic("orders")], "timeout_ms": 1000})
    world.do(dict(world.steps())["request"])
    assert world.life is not None
    while not world.life.store.calls:
        world.life.loop.step()
    world.life.store.next_fate = Fate.LOST
    world.life.store.end_next_call()
    world.settle()
    (topic,) = exchange.answer.topics
    assert error(topic.error_code) == "NONE"
    assert world.node.image.topics["orders"].topic_id == topic.topic_id


def test_a_change_whose_outcome_stays_unknown_is_told_as_timed_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = world.connect().request(ApiKey.CREATE_TOPICS, 7, {"topics": [new_topic("orders")], "timeout_ms": 1000})
    world.do(dict(world.steps())["request"])
    assert world.life is not None
    while not world.life.store.calls:
        world.life.loop.step()

    async def unreachable(prefix: str, revision: int = 0) -> Listing:
        raise StoreFailure("the metadata store cannot be reached")

    monkeypatch.setattr(world.life.store, "list", unreachable)
    world.life.store.next_fate = Fate.LOST
    world.life.store.end_next_call()
    world.settle()
    (topic,) = exchange.answer.topics
    assert error(topic.error_code) == "REQUEST_TIMED_OUT"
    assert topic.error_message.startswith("Whether the change was made is unknown")


# Settings


def configs(world: World, kind: int, name: str, keys: list[str] | None = None, version: int = 4, **options: Any) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return world.ask(ApiKey.DESCRIBE_CONFIGS, version, resources=[resource], **options).results[0]


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_are_described_with_where_they_come_from(world: World, version: int) -> None:
    create_topic(world, segment_bytes="1000")
    found = configs(world, TOPIC, "orders", ["segment.bytes", "retention.ms"], version, include_synonyms=True)
    by_name = {each.name: (each.value, each.config_source) for each in found.configs}
    assert by_name == {"segment.bytes": ("1000", 1), "retention.ms": ("604800000", 5)}
    assert error(configs(world, TOPIC, "nowhere", version=version).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert configs(world, BROKER, "1", ["node.id"], version).configs[0].value == "1"


def test_settings_are_changed_one_by_one_and_take_effect_at_once(world: World) -> None:
    create_topic(world)
    assert alter_topic(world, "orders", max_message_bytes="100").name == "NONE"
    assert error(produce(world, "orders", batch_of(world, bytes(200)))[0].error_code) == "MESSAGE_TOO_LARGE"
    assert alter_topic(world, "orders", max_message_bytes="much").name == "INVALID_CONFIG"
    change = {"name": "max.message.bytes", "config_operation": DELETE, "value": None}
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": [change]}
    world.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, resources=[resource])
    assert produce(world, "orders", batch_of(world, bytes(200)))[0].error_code == 0


def test_a_smaller_segment_size_rolls_the_next_append(world: World) -> None:
    create_topic(world)
    fill(world, "orders", bytes(100))
    alter_topic(world, "orders", segment_bytes="150")
    fill(world, "orders", bytes(100))
    assert len(world.node.hosted.leader("orders", 0).replica.log.segments) == 2


def test_from_os_to_disk_what_is_visible_becomes_durable(world: World) -> None:
    """Seed 3164: it stayed undurable until the next append."""
    create_topic(world, ack_durability="os")
    fill(world, "orders", b"a")
    log = world.node.hosted.leader("orders", 0).replica.log
    assert log.offsets.durable_end == 0
    alter_topic(world, "orders", ack_durability="disk")
    assert log.offsets.durable_end == 1


def test_settings_are_replaced_as_a_whole_by_the_old_api(world: World) -> None:
    create_topic(world, segment_bytes="1000", retention_ms="5000")
    change = {"name": "segment.bytes", "value": "2000"}
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": [change]}
    answer = world.ask(ApiKey.ALTER_CONFIGS, 2, resources=[resource])
    assert answer.responses[0].error_code == 0
    settings = world.node.image.topics["orders"].settings
    assert (settings.segment_bytes, settings.retention_ms) == (2000, 604_800_000)


def test_a_default_of_the_broker_changes_topics_that_do_not_set_it(world: World) -> None:
    create_topic(world)
    create_topic(world, "returns", max_message_bytes="5000")
    change = {"name": "message.max.bytes", "config_operation": SET, "value": "100"}
    resource = {"resource_type": BROKER, "resource_name": "", "configs": [change]}
    assert world.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses[0].error_code == 0
    big = batch_of(world, bytes(200))
    assert error(produce(world, "orders", big)[0].error_code) == "MESSAGE_TOO_LARGE"
    assert produce(world, "returns", big)[0].error_code == 0


def test_resources_with_settings_are_listed(world: World) -> None:
    create_topic(world)
    listed = world.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[TOPIC, BROKER]).config_resources
    assert [(each.resource_type, each.resource_name) for each in listed] == [(TOPIC, "orders"), (BROKER, "1")]
    assert world.ask(ApiKey.LIST_CONFIG_RESOURCES, 0).config_resources == []


# Producers and disks


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(world: World, version: int) -> None:
    def new_id() -> int:
        answer = world.ask(ApiKey.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout_ms=1000)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        return int(answer.producer_id)

    before = [new_id() for _ in range(3)]
    world.kill()
    world.start()
    after = [new_id() for _ in range(3)]
    assert len({*before, *after}) == 6


def test_an_empty_transactional_id_is_refused(world: World) -> None:
    answer = world.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="", transaction_timeout_ms=1000)
    assert (error(answer.error_code), answer.producer_id) == ("INVALID_REQUEST", -1)


def test_active_producers_are_described(world: World) -> None:
    create_topic(world)
    produce(world, "orders", batch_of(world, b"a", b"b", producer_id=7, producer_epoch=1, base_sequence=0))
    topics = [{"name": "orders", "partition_indexes": [0, 5]}]
    (topic,) = world.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics).topics
    good, bad = topic.partitions
    assert [(each.producer_id, each.producer_epoch, each.last_sequence) for each in good.active_producers] == [
        (7, 1, 1)
    ]
    assert error(bad.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize("version", range(1, 6))
def test_the_disk_is_described_with_the_size_of_each_partition(world: World, version: int) -> None:
    create_topic(world, partitions=2)
    fill(world, "orders", bytes(100))
    size = len(batch_of(world, bytes(100)))
    (directory,) = world.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None).results
    assert (directory.error_code, directory.log_dir) == (0, "/data")
    assert [(each.partition_index, each.partition_size) for each in directory.topics[0].partitions] == [
        (0, size),
        (1, 0),
    ]
    asked = [{"topic": "orders", "partitions": [1, 9]}, {"topic": "nowhere", "partitions": [0]}]
    (directory,) = world.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=asked).results
    assert [(each.name, [part.partition_index for part in each.partitions]) for each in directory.topics] == [
        ("orders", [1])
    ]


def test_each_data_directory_is_told_with_its_own_partitions() -> None:
    world = World(directories=2)
    world.start()
    create_topic(world, partitions=3)
    for index in range(3):
        fill(world, "orders", bytes(100), index=index)
    results = world.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None).results
    told = {
        each.log_dir: [part.partition_index for topic in each.topics for part in topic.partitions] for each in results
    }
    assert told == {"/data": [0, 2], "/data-2": [1]}
    assert all(each.total_bytes > 0 and each.usable_bytes > 0 for each in results)


@pytest.mark.parametrize("version", range(1, 4))
def test_without_an_authorizer_access_control_lists_are_refused_as_kafka_refuses_them(
    world: World, version: int
) -> None:
    anything = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    found = world.ask(
        ApiKey.DESCRIBE_ACLS,
        version,
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        **anything,
    )
    assert (error(found.error_code), found.resources) == ("SECURITY_DISABLED", [])
    acl = {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    created = world.ask(ApiKey.CREATE_ACLS, version, creations=[acl, acl])
    assert [error(each.error_code) for each in created.results] == ["SECURITY_DISABLED"] * 2
    wanted = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, **anything}
    deleted = world.ask(ApiKey.DELETE_ACLS, version, filters=[wanted])
    assert [(error(each.error_code), each.matching_acls) for each in deleted.filter_results] == [
        ("SECURITY_DISABLED", [])
    ]

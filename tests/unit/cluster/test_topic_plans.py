"""What topics can be created, grown and deleted, and what is said when they cannot: as Kafka says it."""

import pytest
from tests.unit.cluster.metadata import Metadata, only, refusal

from cordwood.cluster.metadata.tombstones import Tombstone
from cordwood.cluster.planner.forgetting import plan_directories_gone
from cordwood.cluster.planner.internal_topics import internal_topic
from cordwood.cluster.planner.placement import Assignment
from cordwood.cluster.planner.store_transactions import Plan
from cordwood.cluster.planner.topics import (
    MorePartitions,
    NewTopic,
    PartitionAddition,
    TopicCreation,
    TopicDeletion,
    TopicReference,
    plan_create_partitions,
    plan_delete_topics,
)
from cordwood.cluster.stores.interface import MAX_OPERATIONS, check_transaction
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, ZERO_TOPIC_ID, TopicId


async def one_node(**texts: str) -> Metadata:
    return await Metadata(**texts).register(1)


async def test_a_topic_has_the_partitions_and_settings_that_were_asked_for() -> None:
    metadata = await one_node()
    topic = await metadata.create(NewTopic("orders", 3, 1, configs={"retention.ms": "1000"}))
    assert (topic.name, len(topic.partitions), topic.internal) == ("orders", 3, False)
    assert topic.overrides == {"retention.ms": "1000"}
    assert topic.settings.retention_ms == 1000
    assert {(each.leader, each.replicas, each.isr, each.leader_epoch) for each in topic.partitions} == {
        (1, (1,), (1,), 0)
    }


async def test_what_is_not_said_comes_from_the_brokers_settings() -> None:
    metadata = await Metadata(num_partitions="4", default_replication_factor="2").register(1, 2)
    topic = await metadata.create(NewTopic("orders"))
    assert len(topic.partitions) == 4
    assert all(len(each.replicas) == 2 for each in topic.partitions)


@pytest.mark.parametrize(
    ("topic", "code", "reason"),
    [
        (NewTopic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name 'a b' is not valid"),
        (NewTopic("taken"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'taken' already exists."),
        (NewTopic("do.ts"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'do.ts' collides with existing topic: do_ts"),
        (NewTopic("__consumer_offsets"), ErrorCode.POLICY_VIOLATION, "the broker creates it when"),
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS, "invalid non-positive value: 0"),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS, "invalid non-positive value: -2"),
        (NewTopic("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION, "create at most 10000 at a time"),
        (NewTopic("t", 10_001), ErrorCode.POLICY_VIOLATION, "create at most 10000 at a time"),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "must be larger than 0, or -1"),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR, "must be larger than 0, or -1"),
        (
            NewTopic("t", 1, 3),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "replication factor of 3 cannot be reached because only 1 broker(s) are registered",
        ),
        (
            NewTopic("t", configs={"retention.ms": None, "a": None}),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: a,retention.ms",
        ),
        (
            NewTopic("t", configs={"retention.ms": "soon"}),
            ErrorCode.INVALID_CONFIG,
            "Invalid value soon for configuration retention.ms: expected a 64-bit integer",
        ),
        (
            NewTopic("t", configs={"retention.m": "1"}),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: retention.m; did you mean retention.ms?",
        ),
        (
            NewTopic("t", configs={"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}),
            ErrorCode.INVALID_CONFIG,
            "min.compaction.lag.ms (2) > max.compaction.lag.ms (1)",
        ),
        (
            NewTopic("t", 2, configs={"ordering.scope": "global"}),
            ErrorCode.INVALID_PARTITIONS,
            "ordering.scope=global, which needs exactly one partition",
        ),
        (
            NewTopic("t", 1, -1, (Assignment(0, (1,)),)),
            ErrorCode.INVALID_REQUEST,
            "but numPartitions was not set to -1",
        ),
        (
            NewTopic("t", -1, 1, (Assignment(0, (1,)),)),
            ErrorCode.INVALID_REQUEST,
            "but replication factor was not set to -1",
        ),
        (
            NewTopic("t", assignments=(Assignment(0, ()),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "empty replica list",
        ),
        (
            NewTopic("t", assignments=(Assignment(0, (7,)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes broker 7, but no such broker is registered",
        ),
        (
            NewTopic("t", assignments=(Assignment(0, (1, 1)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes the broker 1 more than once",
        ),
        (
            NewTopic("t", assignments=(Assignment(0, (1,)), Assignment(0, (1,)))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("t", assignments=(Assignment(0, (1,)), Assignment(2, (1,)))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "consecutive 0-based integer sequence",
        ),
    ],
)
async def test_a_topic_that_cannot_be_is_refused_with_kafkas_code_and_the_reason(
    topic: NewTopic, code: ErrorCode, reason: str
) -> None:
    metadata = await one_node()
    await metadata.create(NewTopic("taken"), NewTopic("do_ts"))
    refused, message = refusal(metadata.plan(topic)[topic.name])
    assert refused is code
    assert reason in message


async def test_assignments_of_different_sizes_are_refused() -> None:
    metadata = await Metadata().register(1, 2)
    topic = NewTopic("t", assignments=(Assignment(0, (1, 2)), Assignment(1, (2,))))
    code, message = refusal(metadata.plan(topic)["t"])
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "a partition with 1 replica(s)" in message


async def test_partitions_are_put_where_the_client_wants_them() -> None:
    metadata = await Metadata().register(1, 2, 3)
    topic = await metadata.create(NewTopic("t", assignments=(Assignment(1, (3, 1)), Assignment(0, (2, 3)))))
    assert [each.replicas for each in topic.partitions] == [(2, 3), (3, 1)]
    assert [each.leader for each in topic.partitions] == [2, 3]


async def test_leaders_and_followers_are_spread_evenly() -> None:
    metadata = await Metadata().register(1, 2, 3, 4)
    topic = await metadata.create(NewTopic("t", 24, 3))
    leaders = [each.leader for each in topic.partitions]
    assert [leaders.count(broker) for broker in (1, 2, 3, 4)] == [6, 6, 6, 6]
    for broker in (1, 2, 3, 4):
        followers = [each.replicas[1] for each in topic.partitions if each.leader == broker]
        assert {followers.count(other) for other in {1, 2, 3, 4} - {broker}} == {2}
    assert all(len(set(each.replicas)) == 3 for each in topic.partitions)


async def test_a_name_given_twice_in_one_request_is_refused_once() -> None:
    metadata = await one_node()
    outcomes = metadata.plan(NewTopic("a"), NewTopic("b"), NewTopic("a"))
    assert list(outcomes) == ["a", "b"]
    assert refusal(outcomes["a"]) == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    assert isinstance(outcomes["b"], TopicCreation)


async def test_topics_of_one_request_collide_with_each_other() -> None:
    metadata = await one_node()
    outcomes = metadata.plan(NewTopic("a.b"), NewTopic("a_b"))
    assert isinstance(outcomes["a.b"], TopicCreation)
    assert refusal(outcomes["a_b"])[0] is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_topics_of_one_request_share_the_limit_of_partitions() -> None:
    metadata = await one_node(partitions_max="10")
    await metadata.create(NewTopic("a", 4))
    outcomes = metadata.plan(NewTopic("b", 4), NewTopic("c", 4), NewTopic("d", 2))
    assert isinstance(outcomes["b"], TopicCreation)
    assert refusal(outcomes["c"]) == (
        ErrorCode.POLICY_VIOLATION,
        "The cluster would have 12 partitions, but partitions.max allows 10.",
    )
    assert isinstance(outcomes["d"], TopicCreation)


async def test_a_topic_with_a_global_order_has_one_partition_if_none_is_asked_for() -> None:
    metadata = await one_node(num_partitions="6")
    topic = await metadata.create(NewTopic("t", configs={"ordering.scope": "global"}))
    assert len(topic.partitions) == 1


async def test_a_small_topic_is_one_transaction_and_a_large_one_commits_with_its_name() -> None:
    metadata = await one_node()
    small = metadata.plan(NewTopic("small", 100))["small"]
    assert isinstance(small, TopicCreation)
    assert small.plan.preparations == ()
    large = metadata.plan(NewTopic("large", 1000))["large"]
    assert isinstance(large, TopicCreation)
    for transaction in large.plan.in_order():
        check_transaction(*transaction)
    assert len(large.plan.preparations) == -(-1000 // MAX_OPERATIONS)
    prepared = [operation[0] for each in large.plan.preparations for operation in each.operations]
    assert not any(key.startswith("topic_names/") for key in prepared)
    assert any(operation[0] == "topic_names/large" for operation in large.plan.commit.operations)


async def test_the_brokers_own_topic_is_compacted_and_internal() -> None:
    metadata = await one_node(offsets_topic_num_partitions="7")
    topic = await metadata.create(internal_topic(CONSUMER_OFFSETS_TOPIC, metadata.settings, 1), internal=True)
    assert (len(topic.partitions), topic.internal, topic.settings.cleanup_policy) == (7, True, ("compact",))
    assert topic.settings.segment_bytes == 104_857_600


async def test_partitions_can_be_added() -> None:
    metadata = await one_node()
    before = await metadata.create(NewTopic("t", 2))
    addition = plan_create_partitions(metadata.image, [MorePartitions("t", 5)])["t"]
    assert isinstance(addition, PartitionAddition)
    delta = await metadata.carry_out(addition.plan)
    after = metadata.image.topics["t"]
    assert len(after.partitions) == 5
    assert after.partitions[:2] == before.partitions
    assert [(change.before, change.after) for change in delta.changed] == [(before, after)]


async def test_new_partitions_have_as_many_replicas_as_the_old_and_go_where_they_are_wanted() -> None:
    metadata = await Metadata().register(1, 2, 3)
    await metadata.create(NewTopic("t", 1, 2))
    wanted = MorePartitions("t", 3, ((3, 1), (2, 3)))
    addition = plan_create_partitions(metadata.image, [wanted])["t"]
    assert isinstance(addition, PartitionAddition)
    await metadata.carry_out(addition.plan)
    assert [each.replicas for each in metadata.image.topics["t"].partitions[1:]] == [(3, 1), (2, 3)]


@pytest.mark.parametrize(
    ("asked", "code", "reason"),
    [
        (MorePartitions("missing", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'missing' does not exist."),
        (MorePartitions("t", 3), ErrorCode.INVALID_PARTITIONS, "Topic already has 3 partition(s)."),
        (
            MorePartitions("t", 2),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 3 partition(s); 2 would not be an increase.",
        ),
        (MorePartitions("t", 60_000), ErrorCode.POLICY_VIOLATION, "partitions.max allows 50000"),
        (MorePartitions("t", 7_000), ErrorCode.POLICY_VIOLATION, "create at most 5000 at a time"),
        (
            MorePartitions("t", 5, ((1,),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            MorePartitions("t", 4, ((1, 2),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "a partition with 2 replica(s), but this is not consistent",
        ),
        (MorePartitions("t", 4, ((9,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
        (
            MorePartitions("keyed", 4),
            ErrorCode.POLICY_VIOLATION,
            "To add partitions all the same, first set ordering.scope=partition on the topic.",
        ),
        (MorePartitions("total", 2), ErrorCode.INVALID_PARTITIONS, "needs exactly one partition"),
        (MorePartitions("__consumer_offsets", 99), ErrorCode.POLICY_VIOLATION, "is internal"),
    ],
)
async def test_partitions_that_cannot_be_added_are_refused_with_the_reason(
    asked: MorePartitions, code: ErrorCode, reason: str
) -> None:
    metadata = await Metadata(default_replication_factor="1").register(1, 2)
    await metadata.create(
        NewTopic("t", 3),
        NewTopic("keyed", 3, configs={"ordering.scope": "key"}),
        NewTopic("total", configs={"ordering.scope": "global"}),
    )
    await metadata.create(internal_topic(CONSUMER_OFFSETS_TOPIC, metadata.settings, 1), internal=True)
    refused, message = refusal(plan_create_partitions(metadata.image, [asked])[asked.name])
    assert refused is code
    assert reason in message


async def test_a_topic_named_twice_is_not_grown() -> None:
    metadata = await one_node()
    await metadata.create(NewTopic("t"))
    outcomes = plan_create_partitions(metadata.image, [MorePartitions("t", 2), MorePartitions("t", 3)])
    assert refusal(only(outcomes.values())) == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


@pytest.mark.parametrize("by_id", [False, True])
async def test_a_topic_is_deleted_by_name_or_by_id_and_leaves_a_tombstone_that_can_be_dropped(by_id: bool) -> None:
    metadata = await one_node()
    before = [item.key for item in (await metadata.store.list("")).items]
    topic = await metadata.create(NewTopic("t", 300, configs={"retention.ms": "1"}))
    reference = TopicReference(None, topic.topic_id) if by_id else TopicReference("t", ZERO_TOPIC_ID)
    deletion = plan_delete_topics(metadata.image, [reference])[reference]
    assert isinstance(deletion, TopicDeletion)
    assert (deletion.name, deletion.topic_id) == ("t", topic.topic_id)
    delta = await metadata.carry_out(deletion.plan)
    assert delta.deleted == (topic,)
    assert metadata.image.topics == {}
    assert metadata.image.partition_count == 0
    stone = Tombstone("t", (1,), delta.revision)
    assert metadata.image.deleted_topics == (await metadata.copy()).deleted_topics == {topic.topic_id: stone}
    for transaction in plan_directories_gone(metadata.image, [topic.topic_id, UNKNOWN_ID]):
        await metadata.carry_out(Plan((), transaction))
    assert metadata.image.deleted_topics == {}
    assert [item.key for item in (await metadata.store.list("")).items] == before


async def test_a_tombstone_stays_until_each_broker_has_removed_its_directories() -> None:
    metadata = await Metadata().register(1, 2, 3)
    both = Assignment(0, (1, 2))
    topic = await metadata.create(NewTopic("t", assignments=(both,)))
    (deletion,) = plan_delete_topics(metadata.image, [TopicReference("t")]).values()
    assert isinstance(deletion, TopicDeletion)
    await metadata.carry_out(deletion.plan)

    async def gone_at(broker_id: int) -> None:
        metadata.image.node_id = broker_id
        for transaction in plan_directories_gone(metadata.image, [topic.topic_id]):
            await metadata.carry_out(Plan((), transaction))

    for broker_id, left in ((3, (1, 2)), (2, (1,)), (2, (1,))):
        await gone_at(broker_id)
        assert metadata.image.deleted_topics[topic.topic_id].brokers == left
    await gone_at(1)
    assert metadata.image.deleted_topics == {}


UNKNOWN_ID = TopicId(int=7777)


@pytest.mark.parametrize(
    ("reference", "code", "reason"),
    [
        (TopicReference("missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'missing' does not exist."),
        (TopicReference(None, UNKNOWN_ID), ErrorCode.UNKNOWN_TOPIC_ID, str(UNKNOWN_ID)),
        (TopicReference("t", UNKNOWN_ID), ErrorCode.INVALID_REQUEST, "both topic name and topic id"),
        (TopicReference(), ErrorCode.INVALID_REQUEST, "Neither topic name nor id"),
        (TopicReference("__consumer_offsets"), ErrorCode.POLICY_VIOLATION, "lose the positions of all consumers"),
    ],
)
async def test_a_topic_that_cannot_be_deleted_stays_and_the_reason_is_said(
    reference: TopicReference, code: ErrorCode, reason: str
) -> None:
    metadata = await one_node()
    await metadata.create(NewTopic("t"))
    await metadata.create(internal_topic(CONSUMER_OFFSETS_TOPIC, metadata.settings, 1), internal=True)
    refused, message = refusal(plan_delete_topics(metadata.image, [reference])[reference])
    assert refused is code
    assert reason in message


async def test_nothing_is_deleted_where_deletion_is_disabled() -> None:
    metadata = await one_node(delete_topic_enable="false")
    await metadata.create(NewTopic("t"))
    reference = TopicReference("t")
    assert refusal(plan_delete_topics(metadata.image, [reference])[reference])[0] is ErrorCode.TOPIC_DELETION_DISABLED


async def test_a_topic_referred_to_twice_in_one_request_is_not_deleted() -> None:
    metadata = await one_node()
    topic = await metadata.create(NewTopic("t"))
    by_name, by_id = TopicReference("t"), TopicReference(None, topic.topic_id)
    assert refusal(plan_delete_topics(metadata.image, [by_name, by_name])[by_name])[1] == "Duplicate topic name."
    assert refusal(plan_delete_topics(metadata.image, [by_id, by_id])[by_id])[1] == "Duplicate topic id."
    for outcome in plan_delete_topics(metadata.image, [by_name, by_id]).values():
        assert refusal(outcome)[0] is ErrorCode.INVALID_REQUEST


async def test_more_replicas_than_the_setting_allows_are_refused() -> None:
    metadata = await Metadata(replication_factor_max="1").register(1, 2)
    asked = [NewTopic("placed", 1, 2), NewTopic("assigned", -1, -1, assignments=(Assignment(0, (1, 2)),))]
    for name, outcome in metadata.plan(*asked).items():
        assert isinstance(outcome, ProtocolError), name
        assert outcome.code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert "replication.factor.max" in str(outcome)

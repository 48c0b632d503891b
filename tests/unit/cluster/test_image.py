"""The image is what the store says, however it got there, and tells exactly what changed."""

import asyncio
import random
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cluster.metadata import Metadata, visible
from tests.unit.node.lines import Lines

from cordwood.cluster.metadata.image import ClusterImage, ControllerImage, ImageDelta
from cordwood.cluster.metadata.rows import (
    BrokerRow,
    ControllerRow,
    DamagedMetadata,
    PartitionRow,
    encode_broker,
    encode_controller,
    encode_partition,
)
from cordwood.cluster.metadata.strays import Strays
from cordwood.cluster.planner.configs import ConfigChange, ConfigResource, ResourceType, plan_incremental_alter
from cordwood.cluster.planner.sweep import partition_groups, sweep_partitions, sweep_topic
from cordwood.cluster.planner.topics import (
    MorePartitions,
    NewTopic,
    PartitionAddition,
    TopicDeletion,
    TopicReference,
    plan_create_partitions,
    plan_delete_topics,
)
from cordwood.cluster.stores.interface import Delete, Event, Put
from cordwood.model.errors import ProtocolError


async def delete(metadata: Metadata, name: str) -> None:
    deletion = plan_delete_topics(metadata.image, [TopicReference(name)])[TopicReference(name)]
    assert isinstance(deletion, TopicDeletion)
    await metadata.carry_out(deletion.plan)


async def alter(metadata: Metadata, resource: ConfigResource, name: str, text: str) -> None:
    alteration = plan_incremental_alter(metadata.image, resource, [ConfigChange(name, 0, text)])
    if alteration.plan is not None:
        await metadata.carry_out(alteration.plan)


async def test_every_start_of_a_leader_is_a_new_leader_epoch_and_writes_no_partition() -> None:
    metadata = await Metadata().register(1)
    first = await metadata.create(NewTopic("first", 2))
    written = [each.mod_revision for each in first.partitions]
    await metadata.register(1)
    second = await metadata.create(NewTopic("second"))
    await metadata.register(1)
    image, topics = metadata.image, metadata.image.topics
    assert [image.leadership(each) for each in topics["first"].partitions] == [(1, 2), (1, 2)]
    assert [each.mod_revision for each in topics["first"].partitions] == written
    assert image.leadership(topics["second"].partitions[0]) == (1, 1)
    assert topics["first"] is first
    assert topics["second"] is second


async def test_a_restart_of_another_broker_leaves_the_leader_epoch_as_it_is() -> None:
    metadata = await Metadata().register(1, 2)
    topic = await metadata.create(NewTopic("t", 2, 1))
    await metadata.register(2)
    by_leader = dict(map(metadata.image.leadership, metadata.image.topics["t"].partitions))
    assert by_leader == {1: 0, 2: 1}
    assert {each.leader for each in topic.partitions} == {1, 2}


async def test_a_partition_with_several_replicas_has_no_leader_after_a_restart_until_one_is_written() -> None:
    metadata = await Metadata().register(1, 2)
    topic = await metadata.create(NewTopic("t", 1, 2))
    leader = topic.partitions[0].leader
    delta = await (await metadata.register(leader)).refresh()
    assert not delta.changed
    assert metadata.image.leadership(topic.partitions[0]) == (-1, 0)
    row = PartitionRow(leader, 2, 1, replicas=(1, 2), isr=(1, 2), partition_epoch=1)
    await metadata.store.txn((), [Put(f"partitions/{topic.topic_id}/0", encode_partition(row))])
    await metadata.refresh()
    assert metadata.image.leadership(metadata.image.topics["t"].partitions[0]) == (leader, 1)


async def test_a_registration_touches_no_topic() -> None:
    metadata = await Metadata().register(1, 2)
    await metadata.create(NewTopic("t", 10_000, 1))
    follower = await metadata.copy()
    before = follower.topics["t"]
    await metadata.register(1)
    events = (await anext(metadata.store.watch("", follower.revision + 1))).events
    lines = Lines()
    deltas: list[ImageDelta] = []
    assert lines.of(lambda: deltas.append(follower.apply(events))) < 250
    (delta,) = deltas
    assert (delta.registered, delta.changed) == (frozenset({1}), ())
    assert follower.topics["t"] is before
    assert {follower.leadership(each) for each in before.partitions} == {(1, 1), (2, 0)}


async def test_fields_of_a_partition_that_this_release_does_not_know_are_kept() -> None:
    metadata = await Metadata().register(1)
    topic = await metadata.create(NewTopic("t", 2))
    row = PartitionRow(1, 1, 0, replicas=(1,), isr=(1,), unknown=(("tier", "warm"),))
    await metadata.store.txn((), [Put(f"partitions/{topic.topic_id}/1", encode_partition(row))])
    await metadata.refresh()
    assert [each.unknown for each in metadata.image.topics["t"].partitions] == [(), (("tier", "warm"),)]


async def test_a_delta_is_sorted_and_says_what_was_created_changed_and_deleted() -> None:
    metadata = await Metadata().register(1)
    await metadata.create(NewTopic("kept"), NewTopic("old.b"), NewTopic("old.a"))
    before = dict(metadata.image.topics)
    follower = await metadata.copy()
    await metadata.create(NewTopic("new.b"), NewTopic("new.a"))
    await delete(metadata, "old.b")
    await delete(metadata, "old.a")
    await alter(metadata, ConfigResource(ResourceType.TOPIC, "kept"), "retention.ms", "5")
    delta = follower.apply((await anext(metadata.store.watch("", follower.revision + 1))).events)
    assert [topic.name for topic in delta.created] == ["new.a", "new.b"]
    assert delta.deleted == (before["old.a"], before["old.b"])
    assert [(change.before, change.after.settings.retention_ms) for change in delta.changed] == [(before["kept"], 5)]
    assert not delta.brokers_changed
    assert not delta.broker_settings_changed
    assert delta.revision == metadata.image.revision


async def test_a_topic_deleted_and_created_again_is_another_topic() -> None:
    metadata = await Metadata().register(1)
    old = await metadata.create(NewTopic("t", 3))
    follower = await metadata.copy()
    await delete(metadata, "t")
    new = await metadata.create(NewTopic("t", 1))
    delta = follower.apply((await anext(metadata.store.watch("", follower.revision + 1))).events)
    assert (delta.deleted, delta.created, delta.changed) == ((old,), (new,), ())
    assert follower.topics["t"].topic_id == new.topic_id
    assert follower.partition_count == 1


async def test_a_topic_that_came_and_went_within_one_batch_was_never_there() -> None:
    metadata = await Metadata().register(1)
    follower = await metadata.copy()
    await metadata.create(NewTopic("t", 3))
    await delete(metadata, "t")
    assert not follower.apply((await anext(metadata.store.watch("", follower.revision + 1))).events)
    assert visible(follower) == visible(await metadata.copy())


async def test_events_that_were_seen_before_change_nothing() -> None:
    metadata = await Metadata().register(1)
    await metadata.create(NewTopic("t"))
    before = visible(metadata.image)
    assert not metadata.image.apply((await anext(metadata.store.watch("", 2))).events)
    assert visible(metadata.image) == before


async def test_a_change_of_one_partition_leaves_the_others_the_same_objects() -> None:
    metadata = await Metadata().register(1)
    before = await metadata.create(NewTopic("t", 500))
    row = PartitionRow(1, 1, 4, replicas=(1,), isr=(1,), partition_epoch=1)
    await metadata.store.txn((), [Put(f"partitions/{before.topic_id}/250", encode_partition(row))])
    await metadata.refresh()
    after = metadata.image.topics["t"]
    assert after.partitions[250].leader_epoch == 4
    assert all(after.partitions[number] is before.partitions[number] for number in range(500) if number != 250)


async def test_partitions_that_are_stored_alike_are_one_object() -> None:
    metadata = await Metadata().register(1)
    topic = await metadata.create(NewTopic("t", 10_000))
    assert len({id(each) for each in topic.partitions}) <= 100


async def test_a_half_made_topic_is_invisible_and_known_as_stray() -> None:
    metadata = await Metadata().register(1)
    creation = metadata.plan(NewTopic("t", 300))["t"]
    assert not isinstance(creation, ProtocolError)
    for transaction in creation.plan.in_order()[:2]:
        assert (await metadata.store.txn(*transaction)).succeeded
    assert not await metadata.refresh()
    assert metadata.image.topics == {}
    (stray,) = metadata.image.strays().topics
    assert stray.topic_id == creation.topic_id
    assert (await metadata.store.txn(*sweep_topic(stray))).succeeded
    await metadata.refresh()
    assert metadata.image.strays() == (await metadata.copy()).strays() == Strays()


async def test_partitions_beyond_the_count_are_invisible_and_known_as_strays() -> None:
    metadata = await Metadata().register(1)
    before = await metadata.create(NewTopic("t", 2))
    addition = plan_create_partitions(metadata.image, [MorePartitions("t", 300)])["t"]
    assert isinstance(addition, PartitionAddition)
    await metadata.store.txn(*addition.plan.preparations[0])
    assert not await metadata.refresh()
    assert metadata.image.topics["t"] == before
    (stray,) = metadata.image.strays().partitions
    assert (stray.topic_id, stray.partitions[0]) == (before.topic_id, 2)
    for group in partition_groups(stray):
        row_revision = metadata.image.topics["t"].mod_revision
        assert (await metadata.store.txn(*sweep_partitions(stray, group, row_revision))).succeeded
        await metadata.refresh()
    assert metadata.image.strays() == Strays()
    assert metadata.image.topics["t"].partitions == before.partitions


async def test_a_changed_default_of_the_broker_changes_the_topics_that_do_not_override_it() -> None:
    metadata = await Metadata().register(1)
    await metadata.create(NewTopic("free"), NewTopic("own", configs={"retention.ms": "7"}))
    follower = await metadata.copy()
    await alter(metadata, ConfigResource(ResourceType.BROKER, ""), "log.retention.ms", "5")
    delta = follower.apply((await anext(metadata.store.watch("", follower.revision + 1))).events)
    assert delta.broker_settings_changed
    assert [change.after.name for change in delta.changed] == ["free"]
    assert [topic.settings.retention_ms for topic in follower.sorted_topics()] == [5, 7]
    await alter(metadata, ConfigResource(ResourceType.BROKER, "1"), "log.retention.ms", "6")
    assert metadata.image.topics["free"].settings.retention_ms == 6
    assert metadata.image.settings.topic_settings.retention_ms == 6


async def test_what_is_set_on_another_broker_does_not_hold_here() -> None:
    metadata = await Metadata().register(1, 2)
    await alter(metadata, ConfigResource(ResourceType.BROKER, "2"), "log.retention.ms", "6")
    assert metadata.image.settings == metadata.settings
    assert metadata.image.broker_configs == {2: {"log.retention.ms": "6"}}


async def test_settings_that_this_version_does_not_take_are_left_out_and_reported() -> None:
    metadata = await Metadata().register(1)
    topic = await metadata.create(NewTopic("t", configs={"retention.ms": "5"}))
    await metadata.store.txn(
        (), [Put(f"configs/topics/{topic.topic_id}", b'{"retention.ms":"5","from.the.future":"1"}')]
    )
    await metadata.refresh()
    assert metadata.image.topics["t"].settings.retention_ms == 5
    assert metadata.image.problems == ["topic t: Unknown topic config name: from.the.future"]


async def test_names_that_differ_in_dots_and_underscores_are_found() -> None:
    metadata = await Metadata().register(1)
    await metadata.create(NewTopic("a.b_c"))
    assert metadata.image.topic_like("a_b.c") == "a.b_c"
    assert metadata.image.topic_like("a.b") is None
    await delete(metadata, "a.b_c")
    assert metadata.image.topic_like("a_b.c") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topic_names/t", b"not an id"),
        ("topic_names/t", str(uuid.UUID(int=5)).encode()),
        (f"topics/{uuid.UUID(int=5)}", b"[]"),
        (f"topics/{uuid.UUID(int=5)}", b'{"name":"t"}'),
        (f"partitions/{uuid.UUID(int=5)}/0", b"{}"),
        (f"configs/topics/{uuid.UUID(int=5)}", b'{"retention.ms":5}'),
        (f"topics/{uuid.UUID(int=5)}", b'{"name":"t","partition_count":"x"}'),
        (f"partitions/{uuid.UUID(int=5)}/x", b"{}"),
        ("topic_names/t", b"\xff"),
        ("configs/brokers/x", b"{}"),
        ("brokers/1", b"{}"),
        ("brokers/x", b"{}"),
        ("broker_epoch/1", b"x"),
    ],
)
async def test_what_nobody_writes_is_not_guessed_at(key: str, value: bytes) -> None:
    metadata = await Metadata().register(1)
    with pytest.raises(DamagedMetadata):
        metadata.image.apply([Event(key, value, 9, 9)])


async def test_a_topic_that_lacks_a_partition_is_damage() -> None:
    metadata = await Metadata().register(1)
    topic = await metadata.create(NewTopic("t", 3))
    await metadata.store.txn((), [Delete(f"partitions/{topic.topic_id}/1")])
    with pytest.raises(DamagedMetadata, match="topic t lacks partition 1"):
        await metadata.refresh()


_KINDS = [
    "create",
    "delete",
    "grow",
    "alter",
    "broker",
    "register",
    "half",
    "controller",
    "no controller",
    "evidence",
    "no evidence",
]
STEPS = st.lists(st.sampled_from(_KINDS), max_size=12)


async def step(metadata: Metadata, name: str, chance: random.Random) -> None:
    names = sorted(metadata.image.topics)
    match name:
        case "create":
            wanted = NewTopic(chance.choice(["a", "b", "c.d", "c_d"]), chance.choice([1, 3, 130]))
            outcome = metadata.plan(wanted)[wanted.name]
            if not isinstance(outcome, ProtocolError):
                await metadata.carry_out(outcome.plan)
        case "half":
            outcome = metadata.plan(NewTopic("half", 200))["half"]
            assert not isinstance(outcome, ProtocolError)
            for transaction in outcome.plan.in_order()[:2]:
                assert (await metadata.store.txn(*transaction)).succeeded
        case "delete" if names:
            await delete(metadata, chance.choice(names))
        case "grow" if names:
            topic = chance.choice(names)
            count = len(metadata.image.topics[topic].partitions) + chance.choice([1, 140])
            addition = plan_create_partitions(metadata.image, [MorePartitions(topic, count)])[topic]
            assert isinstance(addition, PartitionAddition)
            await metadata.carry_out(addition.plan)
        case "alter" if names:
            resource = ConfigResource(ResourceType.TOPIC, chance.choice(names))
            await alter(metadata, resource, "retention.ms", str(chance.randrange(3)))
        case "broker":
            resource = ConfigResource(ResourceType.BROKER, chance.choice(["", "1"]))
            await alter(metadata, resource, "log.retention.ms", str(chance.randrange(3)))
        case "register":
            await metadata.register(chance.choice([1, 2]))
        case "controller":
            broker = chance.choice([1, 2])
            row = Put("controller", encode_controller(ControllerRow(broker, 1)))
            await metadata.store.txn((), [row, Put(f"storage/{broker}", b"%d" % chance.randrange(9))])
        case "evidence" | "no evidence":
            key = f"evidence/{chance.choice([1, 2])}/{chance.choice([1, 2])}/{chance.choice([3, 4])}"
            await metadata.store.txn((), [Put(key, b"") if name == "evidence" else Delete(key)])
        case "no controller":
            await metadata.store.txn((), [Delete("controller"), Delete("storage/1")])


async def play(steps: list[str], seed: int) -> None:
    chance = random.Random(seed)
    metadata = await Metadata().register(1)
    slow = await metadata.copy()
    relisted = await metadata.copy()
    for name in steps:
        await step(metadata, name, chance)
        await metadata.refresh()
        assert visible(metadata.image) == visible(await metadata.copy())
    if slow.revision < metadata.image.revision:
        slow.apply((await anext(metadata.store.watch("", slow.revision + 1))).events)
    relisted.load(await metadata.store.list(""))
    assert visible(slow) == visible(relisted) == visible(metadata.image)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(0, 2**32))
def test_following_event_by_event_in_one_batch_or_by_listing_again_gives_the_same_image(
    steps: list[str], seed: int
) -> None:
    asyncio.run(play(steps, seed))


def test_an_empty_image_knows_nothing() -> None:
    image = ClusterImage(1, Metadata().settings)
    assert (image.controller_id, image.sorted_topics(), image.revision) == (-1, [], 0)


async def test_the_controller_is_the_broker_that_holds_its_key_else_the_lowest_unfenced() -> None:
    metadata = await Metadata().register(1, 2, 3)
    assert metadata.image.controller_id == 1
    one = metadata.image.brokers[1]
    fenced = BrokerRow(one.epoch, one.incarnation, one.endpoints, None, storage_id="s", unclean=True, fenced=True)
    await metadata.store.txn((), [Put("brokers/1", encode_broker(fenced))])
    assert (await metadata.refresh()).brokers_changed
    one = metadata.image.brokers[1]
    assert (one.storage_id, one.unclean, one.fenced, one.draining, one.electable) == ("s", True, True, False, False)
    assert metadata.image.controller_id == 2
    await metadata.store.txn((), [Put("controller", b'{"broker":1,"epoch":1}')])
    await metadata.refresh()
    assert metadata.image.controller_id == 2, "clients are not told a controller that they are not told as a broker"
    await metadata.store.txn((), [Delete("controller")])
    revision = (await metadata.store.txn((), [Put("controller", b'{"broker":3,"epoch":1}')])).revision
    await metadata.store.txn((), [Put("controller", b'{"broker":3,"epoch":1}'), Put("storage/1", b"s")])
    assert (await metadata.refresh()).brokers_changed
    assert metadata.image.controller == ControllerImage(3, 1, revision)
    assert (metadata.image.controller_id, metadata.image.storage_ids) == (3, {1: "s"})
    await metadata.store.txn((), [Delete("controller"), Delete("brokers/2")])
    await metadata.refresh()
    assert metadata.image.controller_id == 3
    assert visible(metadata.image) == visible(await metadata.copy())

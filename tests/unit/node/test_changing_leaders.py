"""Leadership that is lost and regained: nobody waits for a leader that is gone, and no record changes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from simulation.workloads.transactional_writers import TOPIC
from simulation.world.exchange import Exchange
from simulation.world.world import World
from tests.simulation.one_producer import NAME, Producer, described
from tests.unit.node.speaking import (
    alter_topic,
    batch_of,
    begin_fetch,
    create_topic,
    error,
    fetch,
    fill,
    only,
    produce,
    produce_values,
    values_in,
)
from tests.unit.node.test_held_heartbeats import Member
from tests.unit.node.two_brokers import ME, OTHER, elect, election, leadership, register, run

from cordwood.log.parts.replayed import Replayed
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.wire.apis import ApiKey

LONG_MS = 30_000
A_FEW_TURNS_MS = 20


@pytest.fixture
def world() -> Iterator[World]:
    settings = {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    world = World(seed=1, settings=settings).start()
    yield world
    world.kill()


def begin_produce(world: World, *values: bytes) -> Exchange:
    return world.begin(ApiKey.PRODUCE, 9, **produce_values("orders", batch_of(world, *values), timeout_ms=LONG_MS))


def produced(exchange: Exchange) -> str:
    return error(exchange.answer.responses[0].partition_responses[0].error_code)


def test_an_ack_that_waits_for_followers_ends_with_the_leadership(world: World) -> None:
    create_topic(world)
    elect(world, "orders", ME)
    waiting = begin_produce(world, b"one")
    assert not waiting.answered
    elect(world, "orders", OTHER)
    assert produced(waiting) == "NOT_LEADER_OR_FOLLOWER"


def test_an_ack_waits_on_in_a_new_epoch_of_the_same_leader(world: World) -> None:
    create_topic(world)
    elect(world, "orders", ME)
    waiting = begin_produce(world, b"one")
    elect(world, "orders", ME)
    assert not waiting.answered
    elect(world, "orders", ME, isr=(ME,))
    assert produced(waiting) == "NONE"


def test_a_smaller_in_sync_set_of_the_same_epoch_commits_what_waited(world: World) -> None:
    create_topic(world)
    elect(world, "orders", ME)
    waiting = begin_produce(world, b"one")
    reader = begin_fetch(world, ("orders", 0, 0), max_wait_ms=LONG_MS)
    assert not reader.answered
    partition = world.node.hosted.leader("orders", 0)
    smaller = replace(partition.image, isr=(ME,), mod_revision=partition.image.mod_revision + 1)
    partition.lead(smaller, partition.role.leader_epoch, world.node.now)
    world.settle()
    assert produced(waiting) == "NONE"
    assert values_in(only(reader.answer)) == [b"one"]


def test_too_few_in_sync_replicas_are_told_before_the_append(world: World) -> None:
    create_topic(world, min_insync_replicas="2")
    elect(world, "orders", ME, isr=(ME,))
    (answer,) = produce(world, "orders", batch_of(world))
    assert error(answer.error_code) == "NOT_ENOUGH_REPLICAS"
    assert world.node.hosted.leader("orders", 0).log.offsets.end == 0


def test_a_waiting_fetch_hears_that_the_leader_is_another(world: World) -> None:
    create_topic(world, partitions=2)
    fill(world, "orders", b"one")
    waiting = begin_fetch(world, ("orders", 0, 1), ("orders", 1, 0), max_wait_ms=LONG_MS)
    assert not waiting.answered
    elect(world, "orders", OTHER)
    told = {part.partition_index: error(part.error_code) for part in waiting.answer.responses[0].partitions}
    assert told == {0: "NOT_LEADER_OR_FOLLOWER", 1: "NONE"}


def test_a_waiting_fetch_of_an_epoch_hears_of_the_next(world: World) -> None:
    create_topic(world)
    epoch = leadership(world, "orders").epoch
    waiting = begin_fetch(world, ("orders", 0, 0), max_wait_ms=LONG_MS, current_leader_epoch=epoch)
    careless = begin_fetch(world, ("orders", 0, 0), max_wait_ms=LONG_MS)
    elect(world, "orders", ME)
    assert error(only(waiting.answer).error_code) == "FENCED_LEADER_EPOCH"
    assert not careless.answered


def test_a_leader_that_comes_back_has_its_records_and_knows_where_each_epoch_ended(world: World) -> None:
    create_topic(world)
    fill(world, "orders", b"one", b"two")
    first = leadership(world, "orders").epoch
    elect(world, "orders", OTHER)
    elect(world, "orders", ME, isr=(ME,))
    fill(world, "orders", b"three")
    part = only(fetch(world, ("orders", 0, 0)))
    assert values_in(part) == [b"one", b"two", b"three"]
    asked = [
        {"topic": "orders", "partitions": [{"partition": 0, "leader_epoch": epoch}]} for epoch in (first, first + 2)
    ]
    answer = world.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=asked)
    ends = [(each.partitions[0].leader_epoch, each.partitions[0].end_offset) for each in answer.topics]
    assert ends == [(first, 2), (first + 2, 3)]


def test_the_high_watermark_does_not_fall_when_a_leader_comes_back_to_slow_followers(world: World) -> None:
    create_topic(world)
    fill(world, "orders", b"one", b"two")
    elect(world, "orders", OTHER)
    elect(world, "orders", ME)
    assert only(fetch(world, ("orders", 0, 0))).high_watermark == 2


def test_a_batch_that_is_being_prepared_when_the_leadership_ends_is_refused(world: World) -> None:
    create_topic(world, compression_type="zstd")
    register(world)
    sent = world.connect().request(ApiKey.PRODUCE, 9, produce_values("orders", batch_of(world)))
    assert world.life is not None
    while not world.life.workers.jobs:
        world.do(world.steps()[0][1])
    partition = world.node.hosted.leader("orders", 0)
    run(world.store.txn((), [election(world, "orders", OTHER)]))
    while partition.role.leads:
        world.do(next(step for name, step in world.steps() if name == "turn"))
    world.settle()
    assert produced(sent) == "NOT_LEADER_OR_FOLLOWER"


def test_a_leader_that_cannot_record_its_epoch_serves_nobody_and_tries_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(world)
    fill(world, "orders", b"one")

    def fails(*arguments: Any) -> None:
        raise StorageFailure("the disk fails")

    with monkeypatch.context() as failing:
        failing.setattr(Replayed, "begin_epoch", fails)
        elect(world, "orders", ME, isr=(ME,))
        (answer,) = produce(world, "orders", batch_of(world, b"two"))
        assert error(answer.error_code) == "KAFKA_STORAGE_ERROR"
        assert error(only(fetch(world, ("orders", 0, 0))).error_code) == "KAFKA_STORAGE_ERROR"
    fill(world, "orders", b"three")
    assert values_in(only(fetch(world, ("orders", 0, 0)))) == [b"one", b"three"]


# Groups


def test_members_are_sent_to_the_next_coordinator_and_find_their_group_again(world: World) -> None:
    create_topic(world)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    member = Member(world)
    joined = member.begin_to_join().answer
    member.member_id, member.generation = joined.member_id, joined.generation_id
    share = [{"member_id": member.member_id, "assignment": b"all"}]
    who = {"group_id": "g", "member_id": member.member_id, "generation_id": member.generation}
    member.ask(ApiKey.SYNC_GROUP, 3, **who, assignments=share)
    held = member.begin(ApiKey.HEARTBEAT, 3, **who)
    assert not held.answered
    elect(world, CONSUMER_OFFSETS_TOPIC, OTHER)
    assert error(held.answer.error_code) == "NOT_COORDINATOR"
    elect(world, CONSUMER_OFFSETS_TOPIC, ME, isr=(ME,))
    again = member.begin(ApiKey.HEARTBEAT, 3, **who)
    world.advance(5000)
    assert error(again.answer.error_code) == "NONE"
    (described,) = world.ask(ApiKey.DESCRIBE_GROUPS, 3, groups=["g"]).groups
    assert (described.group_state, len(described.members)) == ("Stable", 1)


def test_a_member_that_waits_for_a_round_is_sent_to_the_next_coordinator(world: World) -> None:
    create_topic(world)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    first = Member(world)
    first.begin_to_join()
    second = Member(world).begin_to_join()
    assert not second.answered
    elect(world, CONSUMER_OFFSETS_TOPIC, OTHER)
    assert error(second.answer.error_code) == "NOT_COORDINATOR"


def test_a_commit_that_waits_for_followers_is_told_that_the_coordinator_is_another(world: World) -> None:
    create_topic(world)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    elect(world, CONSUMER_OFFSETS_TOPIC, ME)
    each = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    values: dict[str, Any] = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    commit = world.begin(ApiKey.OFFSET_COMMIT, 8, **values, topics=[{"name": "orders", "partitions": [each]}])
    assert not commit.answered
    elect(world, CONSUMER_OFFSETS_TOPIC, OTHER)
    assert error(commit.answer.topics[0].partitions[0].error_code) == "NOT_COORDINATOR"


# Transactions


def begin_end(producer: Producer, *, commit: bool = True) -> Exchange:
    return producer.world.begin(ApiKey.END_TXN, 4, **producer.who, committed=commit)


def test_a_transaction_whose_decision_waits_is_left_to_the_next_coordinator(world: World) -> None:
    create_topic(world, TOPIC)
    producer = Producer(world)
    assert error(producer.add(0)) == "NONE"
    assert error(producer.write(9, b"one")) == "NONE"
    elect(world, TRANSACTION_STATE_TOPIC, ME)
    ending = begin_end(producer)
    assert not ending.answered
    elect(world, TRANSACTION_STATE_TOPIC, OTHER)
    assert error(ending.answer.error_code) == "NOT_COORDINATOR"
    assert not values_in(only(fetch(world, (TOPIC, 0, 0), isolation_level=1)))


def test_a_decision_is_completed_by_the_coordinator_that_comes_back(world: World) -> None:
    create_topic(world, TOPIC)
    producer = Producer(world)
    producer.add(0)
    producer.write(9, b"one")
    elect(world, TRANSACTION_STATE_TOPIC, ME)
    begin_end(producer)
    elect(world, TRANSACTION_STATE_TOPIC, OTHER)
    elect(world, TRANSACTION_STATE_TOPIC, ME, isr=(ME,))
    world.advance(2 * world.node.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms)
    assert values_in(only(fetch(world, (TOPIC, 0, 0), isolation_level=1)))[:1] == [b"one"]
    assert error(begin_end(producer).answer.error_code) == "NONE"


def test_markers_for_a_partition_that_is_led_elsewhere_are_tried_until_it_is_led_here(world: World) -> None:
    create_topic(world, TOPIC)
    producer = Producer(world)
    producer.add(0)
    producer.write(9, b"one")
    elect(world, TOPIC, OTHER)
    assert error(begin_end(producer).answer.error_code) == "NONE"
    world.advance(3000)
    elect(world, TOPIC, ME, isr=(ME,))
    world.advance(LONG_MS)
    assert values_in(only(fetch(world, (TOPIC, 0, 0), isolation_level=1)))[:1] == [b"one"]
    assert not any(shard.completing for shard in world.node.transactions.log.loaded_shards())


def test_a_batch_of_a_transaction_whose_coordinator_is_elsewhere_may_be_sent_again(world: World) -> None:
    create_topic(world, TOPIC)
    producer = Producer(world)
    elect(world, TRANSACTION_STATE_TOPIC, OTHER)
    assert error(producer.write(9, b"one")) == "NOT_ENOUGH_REPLICAS"


# Coordinators by epoch


def test_a_decision_of_an_earlier_epoch_is_completed_as_soon_as_the_leadership_begins(world: World) -> None:
    create_topic(world, TOPIC)
    producer = Producer(world)
    producer.add(0)
    producer.write(9, b"one")
    elect(world, TRANSACTION_STATE_TOPIC, ME)
    begin_end(producer)
    elect(world, TRANSACTION_STATE_TOPIC, OTHER)
    elect(world, TRANSACTION_STATE_TOPIC, ME, isr=(ME,))
    world.advance(A_FEW_TURNS_MS)
    assert values_in(only(fetch(world, (TOPIC, 0, 0), isolation_level=1)))[:1] == [b"one"]


def test_members_that_are_gone_time_out_without_a_request_to_the_new_coordinator(world: World) -> None:
    create_topic(world)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    member = Member(world)
    joined = member.begin_to_join().answer
    who = {"group_id": "g", "member_id": joined.member_id, "generation_id": joined.generation_id}
    member.ask(ApiKey.SYNC_GROUP, 3, **who, assignments=[{"member_id": joined.member_id, "assignment": b"all"}])
    elect(world, CONSUMER_OFFSETS_TOPIC, OTHER)
    elect(world, CONSUMER_OFFSETS_TOPIC, ME, isr=(ME,))
    world.advance(A_FEW_TURNS_MS)
    (shard,) = world.node.groups.shards.log.loaded_shards()
    assert list(shard.alarms) == ["g"]
    world.advance(LONG_MS)
    assert shard.machine.groups["g"].state.name == "EMPTY"


def test_nothing_of_an_unloaded_coordinator_goes_on(world: World) -> None:
    create_topic(world, TOPIC)
    producer = Producer(world)
    producer.add(0)
    producer.write(9, b"one")
    elect(world, TOPIC, OTHER)
    begin_end(producer)
    (shard,) = world.node.transactions.log.loaded_shards()
    assert shard.completing
    waiting = world.begin(
        ApiKey.INIT_PRODUCER_ID,
        5,
        transactional_id=NAME,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    assert not waiting.answered
    elect(world, TRANSACTION_STATE_TOPIC, OTHER)
    assert error(waiting.answer.error_code) == "NOT_COORDINATOR"
    assert not shard.patient
    elect(world, TOPIC, ME, isr=(ME,))
    world.advance(LONG_MS)
    assert values_in(only(fetch(world, (TOPIC, 0, 0), isolation_level=1))) == []


def test_a_refusal_waits_until_the_state_behind_it_is_committed(world: World) -> None:
    create_topic(world, TOPIC)
    producer = Producer(world)
    producer.add(0)
    elect(world, TRANSACTION_STATE_TOPIC, ME)
    begin_end(producer, commit=False)
    contrary = begin_end(producer)
    assert not contrary.answered
    elect(world, TRANSACTION_STATE_TOPIC, OTHER)
    assert error(contrary.answer.error_code) == "NOT_COORDINATOR"


def test_a_coordinator_without_enough_replicas_refuses_before_the_append_and_keeps_its_state(world: World) -> None:
    create_topic(world, TOPIC, 2)
    producer = Producer(world)
    assert error(producer.add(0)) == "NONE"
    elect(world, TRANSACTION_STATE_TOPIC, ME, isr=(ME,))
    alter_topic(world, TRANSACTION_STATE_TOPIC, min_insync_replicas="2")
    ends = world.node.hosted.leader(TRANSACTION_STATE_TOPIC, 0).log.offsets.end
    assert error(producer.end(commit=True)) == "COORDINATOR_NOT_AVAILABLE"
    assert error(producer.add(1)) == "COORDINATOR_NOT_AVAILABLE"
    assert world.node.hosted.leader(TRANSACTION_STATE_TOPIC, 0).log.offsets.end == ends
    alter_topic(world, TRANSACTION_STATE_TOPIC, min_insync_replicas="1")
    state = described(world)
    assert (state.transaction_state, [list(each.partitions) for each in state.topics]) == ("Ongoing", [[0]])
    assert error(producer.end(commit=True)) == "NONE"


def test_a_commit_without_enough_replicas_is_refused_before_the_append(world: World) -> None:
    create_topic(world)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    elect(world, CONSUMER_OFFSETS_TOPIC, ME, isr=(ME,))
    alter_topic(world, CONSUMER_OFFSETS_TOPIC, min_insync_replicas="2")
    each = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    values: dict[str, Any] = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    answer = world.ask(ApiKey.OFFSET_COMMIT, 8, **values, topics=[{"name": "orders", "partitions": [each]}])
    assert error(answer.topics[0].partitions[0].error_code) == "COORDINATOR_NOT_AVAILABLE"
    alter_topic(world, CONSUMER_OFFSETS_TOPIC, min_insync_replicas="1")
    fetched = world.ask(ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": "g", "topics": None}], require_stable=False)
    assert list(fetched.groups[0].topics) == []


def test_markers_wait_for_enough_replicas(world: World) -> None:
    create_topic(world, TOPIC)
    producer = Producer(world)
    producer.add(0)
    producer.write(9, b"one")
    alter_topic(world, TOPIC, min_insync_replicas="2")
    end = world.node.hosted.leader(TOPIC, 0).log.offsets.end
    assert error(producer.end(commit=True)) == "NONE"
    world.advance(3000)
    assert world.node.hosted.leader(TOPIC, 0).log.offsets.end == end
    alter_topic(world, TOPIC, min_insync_replicas="1")
    world.advance(LONG_MS)
    assert values_in(only(fetch(world, (TOPIC, 0, 0), isolation_level=1)))[:1] == [b"one"]


def test_a_decision_that_is_committed_in_the_next_epoch_is_not_answered_by_the_earlier_one(world: World) -> None:
    create_topic(world, TOPIC)
    producer = Producer(world)
    producer.add(0)
    elect(world, TRANSACTION_STATE_TOPIC, ME)
    ending = begin_end(producer)
    elect(world, TRANSACTION_STATE_TOPIC, ME)
    elect(world, TRANSACTION_STATE_TOPIC, ME, isr=(ME,))
    assert error(ending.answer.error_code) == "NOT_COORDINATOR"
    world.advance(A_FEW_TURNS_MS)
    assert error(begin_end(producer).answer.error_code) == "NONE"

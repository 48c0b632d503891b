"""What seeds found, without the seeds: each bug as the few steps that it takes.

Those of single handlers stand with the tests of the handlers, in tests/unit/node.
"""

from collections.abc import Callable

import pytest
from simulation.checkers.replicas import ReplicasChecker
from simulation.world.disk import ProcessDied
from simulation.world.exchange import Exchange, State
from simulation.world.links import STORE
from simulation.world.world import World
from tests.unit.node.speaking import (
    alter_topic,
    batch_of,
    begin_fetch,
    create_topic,
    delete_topic,
    fetch,
    fetch_values,
    fill,
    only,
    produce,
    values_in,
)
from tests.unit.node.two_brokers import run

from cordwood.cluster.metadata.partitions import partition_row
from cordwood.cluster.metadata.rows import encode_partition, partition_key
from cordwood.cluster.stores.interface import Put
from cordwood.wire.apis import ApiKey

HOUR_MS = 3_600_000
FIRST_OPERATIONS = range(1, 15)
"""As many as the first append to a partition and its flush make."""


def settle_without_syncs(world: World) -> None:
    while steps := [do for name, do in world.steps() if not any(word in name for word in ("sync", "flush"))]:
        world.do(steps[0])


def answer_under_way(world: World, topic: str) -> Exchange:
    """A fetch that is answered, with the answer held up on the network."""
    exchange = world.connect().request(ApiKey.FETCH, 12, fetch_values((topic, 0, 0)))
    while exchange.state is not State.SENT:
        world.do(dict(world.steps())["request"])
    world.network.answers.remove(exchange)
    return exchange


@pytest.mark.parametrize("number", FIRST_OPERATIONS)
def test_wherever_the_first_append_is_killed_what_is_acknowledged_later_survives_a_power_cut(number: int) -> None:
    """The names of files that a killed process left were taken for durable."""
    world = World(seed=number).start()
    create_topic(world)
    world.disk.die_at = world.disk.operations + number
    with pytest.raises(ProcessDied):
        fill(world, "orders", *[b"never acknowledged"] * FIRST_OPERATIONS.stop)
    world.kill()
    world.start()
    fill(world, "orders", b"acknowledged")
    world.lose_power()
    world.start()
    assert values_in(only(fetch(world, ("orders", 0, 0))))[-1] == b"acknowledged"
    world.kill()


def test_a_first_append_that_did_not_fit_and_a_kill_leave_a_log_that_can_be_trusted() -> None:
    world = World(seed=2).start()
    create_topic(world)
    world.disk.platter.free_for_appends = 100
    assert produce(world, "orders", batch_of(world, bytes(200)))[0].error_code != 0
    world.kill()
    world.disk.platter.free_for_appends = None
    world.start()
    fill(world, "orders", b"acknowledged")
    world.lose_power()
    world.start()
    assert values_in(only(fetch(world, ("orders", 0, 0)))) == [b"acknowledged"]
    world.kill()


def test_a_segment_that_grows_again_after_a_crash_keeps_its_indexes() -> None:
    """Seed 398: it was active and closing at once, so its indexes could be evicted, and the next append failed."""
    world = World(seed=3, loaded_indexes_bytes=1).start()
    create_topic(world, segment_bytes="200")
    fill(world, "orders", bytes(100), bytes(100), bytes(100))
    world.kill()
    # As after a power cut: nothing tells that the batches were durable.
    world.disk.platter.remove("/data/durable-end-witness-0")
    world.disk.platter.cut("/data/orders-0/00000000000000000001.log", 60)
    world.start()
    log = world.node.hosted.leader("orders", 0).replica.log
    assert (log.offsets.end, len(log.segments)) == (1, 2)
    assert log.segments.active is not None
    assert log.segments.active not in log.segments.closing
    world.kill()


def test_a_flush_may_find_that_retention_took_its_segment() -> None:
    """Seed 2480: the checkpoint was quicker than the flush, retention removed the file, and the flush's sync failed."""
    world = World(seed=4, settings={"log.flush.offset.checkpoint.interval.ms": "100"}).start()
    create_topic(world, segment_bytes="150", retention_bytes="150", file_delete_delay_ms="0")
    fill(world, "orders", bytes(100))
    exchanges = [
        world.connect().request(
            ApiKey.PRODUCE,
            9,
            {
                "acks": 1,
                "timeout_ms": HOUR_MS,
                "topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": batch_of(world, value)}]}],
            },
        )
        for value in (bytes(100), bytes(101), bytes(102))
    ]
    settle_without_syncs(world)
    for _ in range(700):
        world.clock.advance(500)
        settle_without_syncs(world)
    log = world.node.hosted.leader("orders", 0).replica.log
    assert log.offsets.start > 1
    world.settle()
    assert all(exchange.answered for exchange in exchanges)
    fill(world, "orders", b"goes on")
    world.kill()


def test_an_answer_under_way_never_reads_a_later_segment_of_the_same_last_name() -> None:
    """Seed 167: a compacted segment was compacted again and got the name under which the first one had been removed."""
    world = World(seed=5, settings={"log.cleaner.backoff.ms": "1000"}).start()
    create_topic(
        world, cleanup_policy="compact", segment_bytes="150", min_cleanable_dirty_ratio="0", file_delete_delay_ms="0"
    )
    fill(world, "orders", *[bytes(100)] * 3)
    exchange = answer_under_way(world, "orders")
    world.advance(200_000)
    assert world.node.logs.clean_offset(world.node.hosted.leader("orders", 0).name) > 0
    alter_topic(world, "orders", file_delete_delay_ms=str(HOUR_MS))
    fill(world, "orders", *[bytes(100)] * 3)
    world.advance(200_000)
    world.disk.give_up_handles()
    exchange.deliver_answer()
    assert exchange.state is State.LOST
    world.kill()


@pytest.mark.parametrize(("delay_ms", "state"), [("0", State.LOST), ("60000", State.ANSWERED)])
def test_an_answer_under_way_never_reads_a_later_topic_of_the_same_name(delay_ms: str, state: State) -> None:
    """The files of the deleted topic stay for file.delete.delay.ms, under another name: until then its own are read."""
    world = World(seed=6).start()
    create_topic(world, file_delete_delay_ms=delay_ms)
    fill(world, "orders", b"first life")
    exchange = answer_under_way(world, "orders")
    for value in (b"other life", b"third life"):
        delete_topic(world, "orders")
        create_topic(world, file_delete_delay_ms=delay_ms)
        fill(world, "orders", value)
    world.connect().request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["orders"], "timeout_ms": 1000})
    while "orders" in world.node.hosted.topics:
        assert world.life is not None
        world.do(next(do for name, do in world.steps() if name in ("request", "turn", "the store answers")))
    world.disk.give_up_handles()
    exchange.deliver_answer()
    assert exchange.state is state
    if state is State.ANSWERED:
        (topic,) = exchange.answer.responses
        assert b"first life" in bytes(topic.partitions[0].records)
    world.kill()


def test_a_fetch_that_waits_is_answered_from_the_segments_that_compaction_made() -> None:
    world = World(seed=7, settings={"log.cleaner.backoff.ms": "1000"}).start()
    create_topic(
        world, cleanup_policy="compact", segment_bytes="150", min_cleanable_dirty_ratio="0", file_delete_delay_ms="0"
    )
    fill(world, "orders", *[bytes(100)] * 4)
    exchange = begin_fetch(world, ("orders", 0, 0), min_bytes=100_000, max_wait_ms=300_000)
    world.advance(299_000)
    assert world.node.logs.clean_offset(world.node.hosted.leader("orders", 0).name) > 0
    assert not exchange.answered
    world.advance(1000)
    assert exchange.answered
    assert only(exchange.answer).error_code == 0
    world.kill()


@pytest.mark.parametrize("step_ms", [1, 200_000])
def test_what_compaction_left_out_is_no_damage_after_the_policy_was_changed(step_ms: int) -> None:
    """Seed 60241: recovery asked the policy of today whether offsets may be missing. In small steps: the crash comes
    before the checkpoint that says how far the log is compacted."""
    world = World(seed=9, settings={"log.cleaner.backoff.ms": "1000"}).start()
    create_topic(world, cleanup_policy="compact", segment_bytes="150", min_cleanable_dirty_ratio="0")
    fill(world, "orders", *[bytes(100)] * 4)
    name = world.node.hosted.leader("orders", 0).name
    left_ms = 200_000
    while left_ms > 0 and not world.node.logs.clean_offset(name):
        world.advance(step_ms)
        left_ms -= step_ms
    assert world.node.logs.clean_offset(name) > 0
    alter_topic(world, "orders", cleanup_policy="delete")
    world.kill()
    world.start()
    part = only(fetch(world, ("orders", 0, 0)))
    assert (part.error_code, len(values_in(part))) == (0, 1)
    assert world.node.hosted.leader("orders", 0).replica.log.reports.damage == []
    world.kill()


def test_there_is_never_more_than_one_checkpoint_to_come() -> None:
    """Seed 60004: the regular checkpoint forgot that another one was due, and the timers of those added up."""
    world = World(seed=10, settings={"log.flush.offset.checkpoint.interval.ms": "300"}).start()
    create_topic(world, segment_bytes="150")
    for _ in range(40):
        fill(world, "orders", bytes(100))
        world.advance(50)
    coming = [
        timer.callback for _, _, timer in world.node.loop.timers._heap if "Checkpoints._once" in repr(timer.callback)
    ]
    assert len(coming) <= 1
    world.kill()


@pytest.mark.parametrize("ending", [World.stop, World.kill, World.lose_power])
def test_a_topic_can_be_deleted_on_a_full_disk_and_that_frees_it(ending: Callable[[World], None]) -> None:
    """Seed 148: offsets had to be saved before anything was removed, and there was no room for them."""
    world = World(seed=8).start()
    create_topic(world)
    create_topic(world, "returns")
    fill(world, "orders", bytes(1000))
    fill(world, "returns", bytes(1000))
    world.disk.platter.free_for_appends = 0
    delete_topic(world, "orders")
    world.disk.platter.free_for_appends = None
    ending(world)
    world.start()
    assert [name for name in world.disk.list("/data") if name.startswith("orders")] == []
    create_topic(world)
    fill(world, "orders", b"afresh")
    assert values_in(only(fetch(world, ("orders", 0, 0)))) == [b"afresh"]
    world.kill()


@pytest.mark.parametrize("by_ms", [-HOUR_MS, HOUR_MS])
def test_files_wait_for_their_last_readers_as_long_if_the_clock_is_set(by_ms: int) -> None:
    world = World(seed=11, settings={"log.retention.check.interval.ms": "500"}).start()
    create_topic(world, segment_bytes="150", retention_bytes="150", file_delete_delay_ms="60000")
    for _ in range(5):
        fill(world, "orders", bytes(100))
    world.advance(2000)

    def waiting() -> list[str]:
        return [name for name in world.disk.list("/data/orders-0") if name.endswith(".deleted")]

    assert waiting()
    world.clock.jump(by_ms)
    world.advance(50_000)
    assert waiting()
    world.advance(20_000)
    assert not waiting()
    world.kill()


def replicated_world() -> tuple[World, ReplicasChecker]:
    """Three brokers with a partition of three replicas, and a checker that has looked at all of them."""
    world = World(seed=12, machines=3, clustered=True).start()
    checker = ReplicasChecker(world)
    world.advance(3000)
    topic = {
        "name": "orders",
        "num_partitions": 1,
        "replication_factor": 3,
        "configs": [{"name": "ack.durability", "value": "os"}],
    }
    (created,) = world.ask_at(1, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000).topics
    assert created.error_code == 0
    world.advance(3000)
    for machine in world.machines:
        checker.look(machine)
    return world, checker


def leader_of(world: World) -> int:
    return world.machine_of(1).node.image.topics["orders"].partitions[0].leader


def test_a_power_cut_after_a_clean_stop_takes_nothing() -> None:
    """Seed 40243: the checker forgot what a replica had not synced when its stop began."""
    world, checker = replicated_world()
    leader = world.machine_of(leader_of(world))
    values = {
        "acks": 1,
        "timeout_ms": 1000,
        "topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": batch_of(world, b"kept")}]}],
    }
    leader.network.connect().request(ApiKey.PRODUCE, 9, values)
    settle_without_syncs(world)
    for machine in (*(each for each in world.machines if each is not leader), leader):
        checker.look(machine)
    (history,) = checker.histories.values()
    assert history.replicas[leader.broker_id].durable_end == 0
    leader.stop()
    leader.lose_power()
    assert checker.lost_power(leader) == []
    assert history.replicas[leader.broker_id].durable_end == 1
    leader.start()
    world.advance(3000)
    assert checker.unconverged() == ""
    assert history.committed_end == 1
    world.kill()


def test_a_leader_is_succeeded_when_its_successor_has_heard_of_it() -> None:
    """Seed 30221: an elected follower whose watch was cut off went on to vouch for the leader that it knew."""
    world, checker = replicated_world()
    old = world.machine_of(leader_of(world))
    new = next(machine for machine in world.machines if machine is not old)
    (key,) = checker.histories
    epoch = checker.histories[key].leadership.epoch
    image = old.node.image
    partition = image.topics["orders"].partitions[0]
    row = partition_row(partition)._replace(
        leader=new.broker_id,
        leader_broker_epoch=image.broker_epochs[new.broker_id],
        leader_epoch=epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )
    for machine in world.machines:
        world.links.cut(STORE, machine.broker_id)
    put = Put(partition_key(key[0], 0), encode_partition(row))
    assert run(world.store.txn((), (put,))).succeeded
    world.advance(2500)
    checker.look(new)
    assert checker.histories[key].leadership.leader == new.broker_id
    assert checker.succeeded_for_ms(key, epoch, old) == 0
    world.links.heal(STORE, new.broker_id)
    world.advance(10)
    checker.look(new)
    world.advance(2500)
    assert checker.succeeded_for_ms(key, epoch, old) == 2500
    world.kill()

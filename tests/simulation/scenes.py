"""Scenes: few steps in a given order that lead to the breach of a rule which random games meet once in hundreds.

Each scene is played with the checkers of the games. A cluster that keeps all rules gets through it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from simulation.checkers.content import read_batches
from simulation.checkers.replicas import ReplicasChecker
from simulation.checkers.replicated_answers import ReplicatedAnswers
from simulation.game import FENCES_LIFTED_MS
from simulation.world.broken import InvariantBroken
from simulation.world.ledger import Ledger
from simulation.world.life import DATA_DIRECTORY
from simulation.world.links import STORE
from simulation.world.slow_store import Fate, SlowStore
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import (
    ALL,
    ROUND_MS,
    TOPIC,
    begin_produce,
    create,
    cut_off,
    elect,
    heal,
    image,
    latest,
    log,
    others,
)
from tests.unit.node.speaking import fetch_values
from tests.unit.node.two_brokers import run

from cordwood.cluster.metadata.rows import broker_key
from cordwood.model.settings.replication_settings import RACK_AWARE_SELECTOR
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

LAG_MS = 1_000
STEPS_TO_SETTLE = 2_000


@contextmanager
def three_brokers(*, clustered: bool = False, racks: bool = False) -> Iterator[tuple[World, ReplicasChecker]]:
    """Brokers whose rules of replication are checked after every step and at every answer.

    `clustered`: with a controller and leases; else leaders are written into the store by hand, and brokers serve
    without an end. `racks`: each broker is in a rack of its own, and clients read from followers. Scenes write with
    acks=1 and read from the end: their records have no identities.
    """
    settings = {"replica.lag.time.max.ms": str(LAG_MS)}
    if racks:
        settings["replica.selector.class"] = RACK_AWARE_SELECTOR
    world = World(seed=1, settings=settings, machines=3, clustered=clustered, racks=racks)
    checker = ReplicasChecker(world)
    for machine in world.machines:
        answers = ReplicatedAnswers(machine, Ledger(), checker)
        machine.network.on_request, machine.network.on_sent = answers.requested, answers.sent
        machine.on_step = partial(checker.look, machine)
    world.start().advance(FENCES_LIFTED_MS if clustered else 0)
    yield world, checker
    checker.unconverged()
    world.kill()


def settle_soon(world: World) -> None:
    """Takes all steps that can happen now. Raises InvariantBroken if there is no end of them."""
    for _ in range(STEPS_TO_SETTLE):
        steps = world.steps()
        if not steps:
            return
        world.do(steps[0][1])
    raise InvariantBroken("rule 2: the replicas never agree")


def produce_values(world: World, value: bytes) -> dict[str, Any]:
    batch = bytes(build_batch([(world.clock.wall_ms, None, value, [])]))
    entry = {"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}
    return {"acks": 1, "timeout_ms": 30_000, "topic_data": [entry]}


def store_of(world: World, broker_id: int) -> SlowStore:
    life = world.machine_of(broker_id).life
    assert life is not None
    return life.store


def a_replica_joins_unheard(world: World) -> tuple[int, int]:
    """The leader asks for the return of a replica into the in-sync set. The store takes the change, and its answer does
    not reach the leader. Returns the leader, and the replica, which is cut off again.

    The third replica hears nothing of the change either: the leader lets fetches of followers that know more wait until
    it knows as much.
    """
    leader = create(world)
    late, third = others(leader)
    cut_off(world, late)
    world.advance(3 * LAG_MS)
    assert late not in image(world, leader).isr
    world.links.cut(STORE, leader)
    heal(world, late)
    world.advance(ROUND_MS)
    assert store_of(world, leader).calls
    world.links.cut(STORE, third)
    store_of(world, leader).take_next_call()
    cut_off(world, late)
    return leader, late


def a_record_is_written_while_a_joining_replica_is_cut_off() -> None:
    with three_brokers() as (world, _):
        leader, late = a_replica_joins_unheard(world)
        begin_produce(world, leader, b"not on the replica that joins", acks=1)
        world.advance(LAG_MS // 2)
        assert (log(world, leader).offsets.end, log(world, late).offsets.end) == (1, 0)


def a_record_is_written_after_the_outcome_of_a_join_got_lost() -> None:
    with three_brokers() as (world, _):
        leader, late = a_replica_joins_unheard(world)
        # A replica that lags is not asked for again.
        world.advance(2 * LAG_MS)
        store = store_of(world, leader)
        store.next_fate = Fate.LOST
        store.end_next_call()
        begin_produce(world, leader, b"not on the replica that joined", acks=1)
        world.advance(LAG_MS // 2)
        assert (log(world, leader).offsets.end, log(world, late).offsets.end) == (1, 0)


def a_change_of_a_deposed_leader_reaches_the_store_late() -> None:
    with three_brokers() as (world, _):
        old = create(world)
        new, late = others(old)
        cut_off(world, late)
        world.advance(LAG_MS // 2)
        world.links.cut(old, STORE)
        world.links.cut(STORE, old)
        begin_produce(world, old, b"not on the replica that lags", acks=1)
        world.advance(3 * LAG_MS)
        assert store_of(world, old).calls, "the leader wants to drop the replica that lags"
        elect(world, new)
        world.links.heal(old, STORE)
        store_of(world, old).take_next_call()
        world.links.heal(STORE, old)
        heal(world, late)
        world.advance(ROUND_MS)
        assert image(world, old).leader == new


def an_answer_of_an_earlier_leader_asks_for_a_cut() -> None:
    with three_brokers() as (world, _):
        last = create(world)
        middle, slow = others(last)
        begin_produce(world, last, b"on all", acks=1)
        world.advance(ROUND_MS)
        elect(world, slow)
        cut_off(world, slow)
        begin_produce(world, slow, b"only here", acks=1)
        elect(world, middle)
        world.links.heal(slow, middle)
        world.advance(ROUND_MS)
        answers = [each for each in world.machine_of(middle).network.answers if each.connection.source == slow]
        assert answers, "the answer that asks for the cut is on its way"
        elect(world, last)
        for way in ((slow, last), (last, slow)):
            world.links.heal(*way)
        begin_produce(world, last, b"on all as well", acks=1)
        world.advance(ROUND_MS)
        assert [log(world, broker).offsets.end for broker in ALL] == [2, 2, 2]
        world.links.heal(middle, slow)
        world.advance(ROUND_MS)
        assert [log(world, broker).offsets.end for broker in ALL] == [2, 2, 2]


def a_replica_is_asked_into_the_isr_and_loses_its_disk_before_the_store_hears_of_it() -> None:
    with three_brokers() as (world, checker):
        leader = create(world)
        late, _ = others(leader)
        cut_off(world, late)
        begin_produce(world, leader, b"on two", acks=1)
        world.advance(3 * LAG_MS)
        world.links.cut(leader, STORE)
        world.links.cut(STORE, leader)
        heal(world, late)
        world.advance(ROUND_MS)
        assert store_of(world, leader).calls
        machine = world.machine_of(late)
        machine.kill()
        machine.replace_disk()
        checker.lost_disk(late)
        machine.start()
        world.links.heal(leader, STORE)
        store_of(world, leader).take_next_call()
        world.links.heal(STORE, leader)
        world.advance(ROUND_MS)


def the_only_replica_in_sync_loses_its_disk() -> None:
    with three_brokers(clustered=True) as (world, checker):
        leader = create(world)
        for broker in others(leader):
            world.links.cut(leader, broker)
        world.advance(3 * LAG_MS)
        assert image(world, leader).isr == (leader,)
        begin_produce(world, leader, b"only here", acks=1)
        machine = world.machine_of(leader)
        machine.kill()
        machine.replace_disk()
        checker.lost_disk(leader)
        world.links.heal_all()
        machine.start()
        world.advance(10_000)
        assert image(world, leader).leader == -1


def a_broker_that_lost_a_log_starts_first() -> None:
    with three_brokers(clustered=True) as (world, checker):
        leader = create(world, ack_durability="os")
        for number in range(3):
            begin_produce(world, leader, b"%d on all" % number, acks=1)
            world.advance(ROUND_MS)
        for broker in ALL:
            world.machine_of(broker).kill()
        world.advance(10_000)
        machine = world.machine_of(leader)
        machine.disk.platter.remove_tree(f"{DATA_DIRECTORY}/{TOPIC}-0")
        checker.lost_disk(leader)
        machine.start()
        world.advance(10_000)
        for broker in others(leader):
            world.machine_of(broker).start()
        world.advance(20_000)
        assert [log(world, broker).offsets.end for broker in ALL] == [3, 3, 3]


def a_leader_resumes_with_old_fetches_in_its_buffers() -> None:
    with three_brokers(clustered=True) as (world, _):
        old = create(world)
        machine = world.machine_of(old)
        begin_produce(world, old, b"on all", acks=1)
        machine.network.connect().request(ApiKey.PRODUCE, 8, produce_values(world, b"wakes the followers"))
        while not {each.connection.source for each in machine.network.answers}.issuperset(others(old)):
            machine.do(next(step for name, step in machine.steps() if name != "answer"))
        machine.pause(clock_stands_still=False)
        world.advance(6_000)
        assert image(world, others(old)[0]).leader != old
        machine.resume()
        connections = [each for each in machine.network.connections if each.source in others(old)]
        reader = machine.network.connect()
        assert all(connection.travelling for connection in connections)
        reader.request(ApiKey.FETCH, 12, fetch_values((TOPIC, 0, 1)))
        for connection in (*connections, reader):
            while connection.travelling:
                machine.do(partial(machine._deliver_request, connection))
        world.advance(1_000)


def a_leader_is_asked_for_its_end_before_its_followers_fetch() -> None:
    with three_brokers() as (world, _):
        old = create(world)
        new, third = others(old)
        begin_produce(world, old, b"on all", acks=1)
        assert latest(world, old) == ("NONE", 1)
        for broker in (old, third):
            world.links.cut(broker, new)
        elect(world, new)
        latest(world, new)


def a_leader_hears_that_its_row_is_gone() -> None:
    with three_brokers(clustered=True) as (world, _):
        leader = create(world)
        for broker in others(leader):
            world.links.cut(STORE, broker)
        item = run(world.store.get(broker_key(leader)))
        assert item is not None
        run(world.store.revoke(item.lease))
        settle_soon(world)
        world.begin_at(leader, ApiKey.FETCH, 12, **fetch_values((TOPIC, 0, 0)))


def a_slow_disk_confirms_a_record_after_the_lease_has_ended() -> None:
    with three_brokers(clustered=True) as (world, _):
        old = create(world)
        machine = world.machine_of(old)
        machine.slow_until_ms = machine.clock.boot_ms + 9_000
        begin_produce(world, old, b"on a slow disk", acks=1)
        cut_off(world, old)
        for way in ((old, STORE), (STORE, old)):
            world.links.cut(*way)
        world.advance(8_900)
        assert image(world, others(old)[0]).leader != old
        world.advance(200)


def a_follower_is_behind_the_start_of_its_leaders_log() -> None:
    with three_brokers() as (world, checker):
        leader = create(world)
        late, _ = others(leader)
        cut_off(world, late)
        for _ in range(3):
            begin_produce(world, leader, b"deleted soon", acks=1)
        world.advance(3 * LAG_MS)
        entry = {"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 3}]}
        world.ask_at(leader, ApiKey.DELETE_RECORDS, 1, topics=[entry], timeout_ms=1000)
        heal(world, late)
        world.advance(5 * ROUND_MS)
        if reason := checker.unconverged():
            raise InvariantBroken(f"rule 6: {reason}")


def a_follower_wrote_in_an_epoch_that_its_leader_does_not_know() -> None:
    """The last epoch that both know ends earlier in the follower's log than in the leader's."""
    with three_brokers() as (world, checker):
        first = create(world)
        second, third = others(first)
        begin_produce(world, first, b"on all", acks=1)
        world.advance(ROUND_MS)
        cut_off(world, third)
        begin_produce(world, first, b"on two", acks=1)
        begin_produce(world, first, b"on two", acks=1)
        world.advance(ROUND_MS)
        cut_off(world, second)
        elect(world, third)
        begin_produce(world, third, b"only here", acks=1)
        elect(world, second)
        world.links.heal_all()
        settle_soon(world)
        world.advance(ROUND_MS)
        if reason := checker.unconverged():
            raise InvariantBroken(f"rule 2: {reason}")


def a_broker_is_elected_that_lacks_committed_records_and_nobody_says_so() -> None:
    """As by metadata that went back. The records are lost to the checker, and only one replica still has them."""
    with three_brokers() as (world, checker):
        first = create(world)
        second, third = others(first)
        elect(world, first, isr=(first, second))
        cut_off(world, third)
        begin_produce(world, first, b"committed", acks=1)
        world.advance(ROUND_MS)
        begin_produce(world, first, b"tells the high watermark", acks=1)
        world.advance(ROUND_MS)
        for history in checker.histories.values():
            history.accept_loss()
        elect(world, third, isr=(third,))
        world.links.heal_all()
        world.advance(ROUND_MS)


def lose_power_and_tail(world: World, broker_id: int, *, records: int) -> None:
    """Cuts the power of a machine whose disk keeps so many records, one in a batch."""
    machine = world.machine_of(broker_id)
    batches = list(read_batches(log(world, broker_id)))
    kept_bytes = sum(len(batch) for _, batch in batches[:records])
    keep_through_power_cut(world, broker_id)
    machine.disk.platter.cut(f"{DATA_DIRECTORY}/{TOPIC}-0/{0:020}.log", kept_bytes)


def keep_through_power_cut(world: World, broker_id: int) -> None:
    """Cuts the power of a machine whose disk happens to have everything."""
    machine = world.machine_of(broker_id)
    machine.disk.platter.sync_everything()
    machine.lose_power()


def all_lose_their_power_and_the_last_leader_loses_most() -> None:
    with three_brokers(clustered=True) as (world, checker):
        leader = create(world, ack_durability="os")
        _, keeper = others(leader)
        begin_produce(world, leader, b"on all", acks=1)
        world.advance(ROUND_MS)
        for broker in ALL:
            if broker == keeper:
                keep_through_power_cut(world, broker)
            else:
                lose_power_and_tail(world, broker, records=0)
            checker.lost_power(world.machine_of(broker))
        world.advance(10_000)
        for broker in (keeper, *others(keeper)):
            world.machine_of(broker).start()
        world.advance(20_000)
        if [log(world, broker).offsets.end for broker in ALL] != [1, 1, 1]:
            raise InvariantBroken("the rule of the longest log: a record is lost that one of the replicas had")


def a_fetch_of_an_earlier_registration_arrives_late() -> None:
    with three_brokers(clustered=True) as (world, _):
        leader = create(world)
        follower, _ = others(leader)
        world.links.cut(follower, leader)
        begin_produce(world, leader, b"wakes the follower", acks=1)
        for way in ((follower, STORE), (STORE, follower)):
            world.links.cut(*way)
        world.advance(4_000)
        for way in ((follower, STORE), (STORE, follower)):
            world.links.heal(*way)
        world.advance(3_000)
        assert image(world, leader).leader == leader
        assert world.machine_of(leader).node.image.broker_epochs[follower] == 2
        world.links.heal(follower, leader)
        world.advance(ROUND_MS)


def a_fetch_of_a_replica_that_left_arrives_when_it_has_come_back() -> None:
    with three_brokers(clustered=True) as (world, _):
        leader = create(world)
        stays, leaves = others(leader)
        world.links.cut(leaves, leader)
        begin_produce(world, leader, b"wakes the follower", acks=1)
        world.advance(ROUND_MS)
        move(world, leader, stays)
        assert image(world, leader).replicas == (leader, stays)
        move(world, leader, stays, leaves)
        assert leaves in image(world, leader).replicas
        world.links.heal(leaves, leader)
        world.advance(ROUND_MS)


def move(world: World, *replicas: int) -> None:
    entry = {"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": list(replicas)}]}
    answer = world.ask_at(replicas[0], ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=1000, topics=[entry])
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    world.advance(ROUND_MS)


def records_are_deleted_and_their_leader_dies() -> None:
    with three_brokers() as (world, _):
        leader = create(world)
        slow, successor = others(leader)
        begin_produce(world, leader, b"deleted soon", acks=1)
        world.advance(ROUND_MS)
        cut_off(world, successor)
        entry = {"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 1}]}
        world.begin_at(leader, ApiKey.DELETE_RECORDS, 1, topics=[entry], timeout_ms=1000)
        world.advance(LAG_MS // 2)
        elect(world, successor, isr=(slow, successor))


def a_replica_joins_that_was_away_when_records_were_deleted() -> None:
    with three_brokers() as (world, _):
        leader = create(world)
        stays, late = others(leader)
        begin_produce(world, leader, b"deleted soon", acks=1)
        world.advance(ROUND_MS)
        cut_off(world, late)
        world.advance(3 * LAG_MS)
        entry = {"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 1}]}
        world.ask_at(leader, ApiKey.DELETE_RECORDS, 1, topics=[entry], timeout_ms=1000)
        machine = world.machine_of(late)
        with patch.object(machine.node.loop.effects, "blocking", lambda *work: None):
            heal(world, late)
            world.advance(ROUND_MS)
        joined = late in image(world, stays).isr
        machine.kill()
        machine.start()
        cut_off(world, leader)
        world.settle()
        if joined:
            elect(world, late, isr=(stays, late))
            latest(world, late)


def a_client_reads_at_a_follower_while_another_is_cut_off() -> None:
    with three_brokers(racks=True) as (world, _):
        leader = create(world)
        near, late = others(leader)
        cut_off(world, late)
        begin_produce(world, leader, b"not on all replicas", acks=1)
        world.advance(LAG_MS // 4)
        assert (log(world, near).offsets.end, log(world, late).offsets.end) == (1, 0)
        world.ask_at(near, ApiKey.FETCH, 12, **fetch_values((TOPIC, 0, 0), isolation_level=0))

"""DeleteRecords on replicated partitions: an answer without an error survives every failover."""

from collections.abc import Callable

import pytest
from simulation.world.exchange import Exchange
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import (
    ALL,
    LAG_MS,
    ROUND_MS,
    TOPIC,
    begin_produce,
    create,
    cut_off,
    elect,
    heal,
    hosted,
    image,
    log,
    others,
    world,
)

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey

__all__ = ["world"]

RECORDS = 5


@pytest.fixture
def led(world: World) -> tuple[World, int]:
    """Three brokers, and the leader of a topic whose records all replicas have."""
    leader = create(world)
    for _ in range(RECORDS):
        begin_produce(world, leader, b"value")
    world.advance(ROUND_MS)
    return world, leader


def begin_deletion(world: World, at: int, *offsets: int, timeout_ms: int = 30_000) -> Exchange:
    """Asks for the deletion of records before each offset, in partition 0, 1, ..."""
    entries = [{"partition_index": index, "offset": offset} for index, offset in enumerate(offsets)]
    values = {"topics": [{"name": TOPIC, "partitions": entries}], "timeout_ms": timeout_ms}
    exchange = world.connect(at).request(ApiKey.DELETE_RECORDS, 2, values)
    world.settle()
    return exchange


def deleted(exchange: Exchange) -> list[tuple[str, int]]:
    """The error and the low watermark of each partition."""
    assert exchange.answered, exchange.state
    found = exchange.answer.topics[0].partitions
    return [(ErrorCode(each.error_code).name, each.low_watermark) for each in found]


def hold_files(world: World, broker_id: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Holds up the work of a broker's threads on its files. The returned function lets the work go on."""
    effects, held = world.machine_of(broker_id).node.loop.effects, []
    real = effects.blocking
    monkeypatch.setattr(effects, "blocking", lambda *work: held.append(work))

    def go_on() -> None:
        monkeypatch.setattr(effects, "blocking", real)
        for work in held:
            real(*work)
        world.settle()

    return go_on


def kill_and_elect(world: World, leader: int, successor: int) -> None:
    world.machine_of(leader).kill()
    elect(world, successor, isr=tuple(others(leader)))


@pytest.mark.parametrize("successor", [0, 1])
def test_deleted_records_stay_deleted_when_the_leader_is_killed_behind_its_answer(
    led: tuple[World, int], successor: int
) -> None:
    world, leader = led
    asked = begin_deletion(world, leader, RECORDS)
    while not asked.answered:
        world.advance(1)
    assert deleted(asked) == [("NONE", RECORDS)]
    new = others(leader)[successor]
    machine = world.machine_of(new)
    # The successor loses its power as well: its new start has to be on its disk.
    machine.lose_power()
    machine.start()
    kill_and_elect(world, leader, new)
    assert log(world, new).offsets.start == RECORDS


def test_the_answer_waits_for_a_replica_that_is_cut_off_until_it_leaves_the_in_sync_set(led: tuple[World, int]) -> None:
    world, leader = led
    slow, quick = others(leader)
    cut_off(world, slow)
    asked = begin_deletion(world, leader, 3)
    world.advance(100)
    assert not asked.answered
    assert log(world, quick).offsets.start == 3
    world.advance(3 * LAG_MS)
    assert set(image(world, leader).isr) == {leader, quick}
    assert deleted(asked) == [("NONE", 3)]


def test_the_answer_waits_for_the_disk_of_a_follower(led: tuple[World, int], monkeypatch: pytest.MonkeyPatch) -> None:
    world, leader = led
    slow = others(leader)[0]
    go_on = hold_files(world, slow, monkeypatch)
    asked = begin_deletion(world, leader, 3)
    world.advance(2_000)
    assert log(world, slow).offsets.start == 3
    assert not asked.answered
    go_on()
    world.advance(20)
    assert deleted(asked) == [("NONE", 3)]


def test_a_deletion_hears_of_its_followers_within_milliseconds(led: tuple[World, int]) -> None:
    world, leader = led
    world.advance(20)
    asked = begin_deletion(world, leader, 3)
    world.advance(20)
    assert deleted(asked) == [("NONE", 3)]


def test_a_deletion_that_a_follower_does_not_save_in_time_ends_with_a_timeout(led: tuple[World, int]) -> None:
    world, leader = led
    cut_off(world, others(leader)[0])
    asked = begin_deletion(world, leader, 3, timeout_ms=1_000)
    world.advance(1_600)
    assert deleted(asked) == [("REQUEST_TIMED_OUT", 3)]


def test_a_deletion_that_waits_ends_with_the_leadership(led: tuple[World, int]) -> None:
    world, leader = led
    slow, quick = others(leader)
    cut_off(world, slow)
    asked = begin_deletion(world, leader, 3)
    world.advance(100)
    elect(world, quick)
    world.advance(ROUND_MS)
    assert deleted(asked) == [("NOT_LEADER_OR_FOLLOWER", 3)]


def test_a_replica_joins_the_in_sync_set_with_the_start_that_was_acknowledged_without_it(
    led: tuple[World, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, leader = led
    late, quick = others(leader)
    cut_off(world, late)
    world.advance(3 * LAG_MS)
    assert deleted(_deleted_at_once(world, leader)) == [("NONE", 3)]
    heal(world, late)
    go_on = hold_files(world, late, monkeypatch)
    world.advance(4_000)
    assert set(image(world, leader).isr) == {leader, quick}, "the disk of the replica has not saved the start yet"
    go_on()
    world.advance(ROUND_MS)
    machine = world.machine_of(late)
    assert set(image(world, leader).isr) == set(ALL)
    machine.lose_power()
    machine.start()
    assert hosted(world, late).log.offsets.start == 3


def _deleted_at_once(world: World, leader: int) -> Exchange:
    asked = begin_deletion(world, leader, 3)
    world.advance(100)
    return asked


def test_a_deletion_of_what_is_deleted_waits_for_the_same_replicas(led: tuple[World, int]) -> None:
    world, leader = led
    cut_off(world, others(leader)[0])
    first = begin_deletion(world, leader, 3)
    again = begin_deletion(world, leader, 2)
    world.advance(100)
    assert not first.answered
    assert not again.answered

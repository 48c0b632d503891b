"""Families on a whole node: real batches, read_committed readers, restarts between any two steps, and bad requests."""

import random
from contextlib import suppress
from hashlib import sha256
from typing import Any

import pytest
from simulation.checkers.rest import check_at_rest
from simulation.transaction_game import SETTINGS
from simulation.workloads.transactional_writers import TOPIC
from simulation.world.disk import ProcessDied
from simulation.world.world import World
from tests.simulation.families_speaking import (
    FAMILY,
    Task,
    begin_decision,
    decide,
    families,
    nothing_open,
    renew,
    visible,
)
from tests.simulation.one_producer import position

from cordwood.model.errors import ErrorCode
from cordwood.model.families import MAX_PLAN_BYTES
from cordwood.model.moment import Moment
from cordwood.node.coordinators import family_coordinator, transaction_completion
from cordwood.node.coordinators.transaction_markers import MarkerWriter
from cordwood.transactions.families_deciding import FORGET_AFTER_MS
from cordwood.wire.apis import ApiKey


def started(seed: int) -> World:
    world = World(seed, {**SETTINGS, "transactional.id.expiration.ms": "500000"})
    world.start()
    topic = {"name": TOPIC, "num_partitions": 3, "replication_factor": 1}
    assert world.ask(ApiKey.CREATE_TOPICS, 4, topics=[topic], timeout_ms=1000).topics[0].error_code == 0
    return world


@pytest.fixture
def world() -> World:
    return started(1)


def restart(world: World) -> None:
    world.lose_power()
    world.start()
    world.settle()


# One batch


def test_a_batch_of_many_tasks_is_seen_at_once_and_the_losers_never(world: World) -> None:
    tasks = [Task(world, 0) for _ in range(3)]
    loser = Task(world, 0)
    for number, task in enumerate(tasks):
        assert task.write(b"%d" % number, partition=number) is ErrorCode.NONE
        assert task.write(b"%d again" % number, partition=number) is ErrorCode.NONE
        assert task.write(b"%d elsewhere" % number, partition=(number + 1) % 3) is ErrorCode.NONE
    assert loser.write(b"lost", partition=1) is ErrorCode.NONE
    assert visible(world) == []
    answer = decide(world, 0, *tasks)
    assert (answer.error_code, answer.already_decided, answer.last_batch_id) == (ErrorCode.NONE, False, 0)
    assert len(visible(world)) == 9
    assert b"lost" not in visible(world)
    assert nothing_open(world)


def test_slots_and_producer_ids_stay_few_over_many_batches(world: World) -> None:
    producer_ids = set()
    for batch_id in range(30):
        tasks = [Task(world, batch_id) for _ in range(3)]
        for number, task in enumerate(tasks):
            assert task.write(b"%d.%d" % (batch_id, number), partition=number) is ErrorCode.NONE
            producer_ids.add(task.producer_id)
        assert decide(world, batch_id, *tasks).error_code == 0
    assert len(visible(world)) == 90
    assert len(producer_ids) == 3
    assert families(world)[FAMILY].slots == 3


def test_a_batch_that_is_replayed_writes_nothing_even_if_it_would_be_another_one(world: World) -> None:
    task = Task(world, 4)
    task.write(b"first")
    decide(world, 4, task)
    restart(world)
    again = Task(world, 4)
    assert (again.decided, again.last_batch_id, again.transactional_id) == (True, 4, None)
    answer = decide(world, 4)
    assert (answer.error_code, answer.already_decided) == (0, True)
    assert visible(world) == [b"first"]


def test_an_abort_leaves_nothing_and_the_batch_can_be_tried_again(world: World) -> None:
    Task(world, 0).write(b"first try")
    assert decide(world, 0, commit=False).last_batch_id == -1
    assert nothing_open(world)
    task = Task(world, 0)
    assert not task.decided
    assert task.write(b"second try") is ErrorCode.NONE
    assert decide(world, 0, task).error_code == 0
    assert visible(world) == [b"second try"]


def test_positions_that_a_task_moves_move_with_its_batch(world: World) -> None:
    winner, loser = Task(world, 0), Task(world, 0)
    for task, offset in ((loser, 9), (winner, 5)):
        moved = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        topics = [{"name": TOPIC, "partitions": [moved]}]
        answer = world.ask(ApiKey.TXN_OFFSET_COMMIT, 5, group_id="group", topics=topics, **task.slot)
        assert answer.topics[0].partitions[0].error_code == 0
    assert position(world, require_stable=False) == (-1, ErrorCode.NONE)
    restart(world)
    assert decide(world, 0, winner).error_code == 0
    assert position(world, require_stable=True) == (5, ErrorCode.NONE)


# Zombies


def test_a_zombie_that_joined_before_the_decision_is_refused_wherever_it_writes_after_it(world: World) -> None:
    winner, loser, idle, late = (Task(world, 0) for _ in range(4))
    for task in (winner, loser):
        assert task.write(b"early", partition=0) is ErrorCode.NONE
    assert decide(world, 0, winner).error_code == 0
    for task in (winner, loser, idle, late):
        for partition in range(3):
            for version in (11, 12):
                assert task.write(b"late", partition=partition, version=version) is ErrorCode.INVALID_PRODUCER_EPOCH
    restart(world)
    for task in (winner, loser, idle):
        assert task.write(b"later", partition=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert visible(world) == [b"early"]
    assert nothing_open(world)


def test_a_zombie_does_not_write_into_the_transaction_of_whoever_has_its_slot_now(world: World) -> None:
    zombie = Task(world, 0)
    zombie.write(b"zombie")
    decide(world, 0, commit=False)
    heir = Task(world, 0)
    assert heir.transactional_id == zombie.transactional_id
    heir.write(b"heir", partition=0)
    for partition in range(3):
        assert zombie.write(b"again", partition=partition) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert decide(world, 0, zombie).error_code == ErrorCode.PRODUCER_FENCED
    assert decide(world, 0, heir).error_code == 0
    assert visible(world) == [b"heir"]


def test_a_driver_that_decides_what_somebody_else_decided_changes_nothing(world: World) -> None:
    mine, theirs = Task(world, 0), Task(world, 0)
    mine.write(b"mine")
    theirs.write(b"theirs")
    decide(world, 0, theirs)
    next_batch = Task(world, 1)
    next_batch.write(b"next")
    answer = decide(world, 0, mine)
    assert (answer.error_code, answer.already_decided) == (0, True)
    assert decide(world, 1, next_batch).error_code == 0
    assert visible(world) == [b"next", b"theirs"]


def test_a_join_and_a_decision_on_their_way_at_once_end_in_one_of_two_ways(world: World) -> None:
    joining = world.connect().request(ApiKey.FAMILY_JOIN, 0, {"family": FAMILY, "batch_id": 0, "timeout_ms": 1000})
    deciding = begin_decision(world, 0)
    world.settle()
    assert deciding.answer.error_code == 0
    joined = joining.answer
    assert joined.error_code == 0
    if not joined.decided:
        task = Task.__new__(Task)
        task.world, task.transactional_id = world, joined.transactional_id
        task.producer_id, task.epoch, task._sequences = joined.producer_id, joined.producer_epoch, {}
        assert task.write(b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert visible(world) == []


# Restarts


def test_a_broker_that_restarts_between_any_two_steps_changes_nothing(world: World) -> None:
    first, second, loser = (Task(world, 0) for _ in range(3))
    restart(world)
    assert first.write(b"first") is ErrorCode.NONE
    restart(world)
    assert first.write(b"more", partition=1) is ErrorCode.NONE
    assert second.write(b"second", partition=2) is ErrorCode.NONE
    assert loser.write(b"lost", partition=2) is ErrorCode.NONE
    restart(world)
    assert visible(world) == []
    assert decide(world, 0, first, second).error_code == 0
    restart(world)
    assert visible(world) == [b"first", b"more", b"second"]
    assert decide(world, 0, first, second).already_decided
    assert nothing_open(world)


@pytest.mark.parametrize("cut", ["power", "kill"])
def test_all_or_nothing_at_whatever_moment_the_broker_dies(world: World, cut: str) -> None:
    """The process dies at every disk operation from the arrival of the decision on."""
    outcomes = set()
    expected: list[bytes] = []
    for batch_id in range(1, 60):
        tasks = [Task(world, batch_id) for _ in range(3)]
        loser = Task(world, batch_id)
        texts = [b"%d.%d" % (batch_id, number) for number in range(3)]
        for number, task in enumerate(tasks):
            assert task.write(texts[number], partition=number) is ErrorCode.NONE
        assert loser.write(b"lost") is ErrorCode.NONE
        exchange = begin_decision(world, batch_id, *tasks)
        world.disk.die_within(batch_id)
        with suppress(ProcessDied):
            world.settle()
        died = world.disk.died
        world.disk.die_at = None
        answered = exchange.answer is not None and exchange.answer.error_code == 0
        if answered and not died:
            assert visible(world) == sorted([*expected, *texts]), "all, once the commit has answered"
        if cut == "power":
            world.lose_power()
        else:
            world.kill()
        world.start()
        world.settle()
        decided = Task(world, batch_id).decided
        assert decided or not answered
        again = decide(world, batch_id, *tasks)
        assert (again.error_code, again.already_decided) == (0, decided)
        expected = sorted([*expected, *texts])
        assert visible(world) == expected
        assert nothing_open(world)
        outcomes.add((answered, decided))
        if not died:
            break
    assert {(False, False), (False, True), (True, True)} <= outcomes


def test_a_decision_is_one_record_batch_so_no_tear_keeps_a_part_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [Task(world, 0) for _ in range(5)]
    for task in tasks:
        task.write(b"value")
    partition = next(each for each in world.node.hosted.led("__transaction_state") if each.opened is not None)
    end_before = partition.replica.log.offsets.end
    exchange = begin_decision(world, 0, *tasks)
    appended: list[int] = []
    append = world.node.appends.append_internal

    def watch(where: Any, batch: bytearray, now: Moment, *marker: Any) -> Any:
        result = append(where, batch, now, *marker)
        if where is partition:
            appended.append(result.last_offset - result.base_offset + 1)
        return result

    monkeypatch.setattr(world.node.appends, "append_internal", watch)
    world.settle()
    assert exchange.answer.error_code == 0
    assert appended[0] == 6, "the family's record and five slots"
    assert partition.replica.log.offsets.end == end_before + 6 + 5


def test_no_marker_is_written_before_it_is_safe_that_its_slot_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks take back what is theirs, and the power goes at a first marker: whichever is open then is whole."""
    marked: list[Any] = []

    write_markers = MarkerWriter.write

    def write(markers: MarkerWriter, how: Any, *arguments: Any) -> None:
        marked.append(how)
        write_markers(markers, how, *arguments)

    monkeypatch.setattr(MarkerWriter, "write", write)
    whole = 0
    for seed in range(60):
        chance = random.Random(seed)
        world = started(seed)
        tasks = [Task(world, 0) for _ in range(2)]
        for task in tasks:
            assert task.write(b"value of %d" % task.producer_id) is ErrorCode.NONE
        for task in tasks:
            begin_decision(world, 0, task, commit=False)
        marked.clear()
        while not marked:
            world.do(chance.choice(world.steps())[1])
        restart(world)
        for task in tasks:
            answer = decide(world, 0, task)
            if answer.error_code == 0 and not answer.already_decided:
                assert visible(world) == [b"value of %d" % task.producer_id], seed
                whole += 1
        world.kill()
    assert whole > 0


# Time


def test_a_task_that_renews_keeps_its_whole_batch_open_and_no_other(world: World) -> None:
    done, left_behind = Task(world, 1, timeout_ms=2000), Task(world, 0, timeout_ms=2000)
    done.write(b"done")
    left_behind.write(b"left behind")
    for _ in range(6):
        world.advance(1000)
        answer = renew(world, 1)
        assert (answer.error_code, answer.decided) == (0, False)
    assert families(world)[FAMILY].open_slots == 1
    assert decide(world, 1, done).error_code == 0
    assert visible(world) == [b"done"]
    assert renew(world, 1).decided


def test_what_nobody_renews_is_aborted_and_cannot_win(world: World) -> None:
    task, idle = Task(world, 0, timeout_ms=2000), Task(world, 0, timeout_ms=2000)
    task.write(b"value")
    world.advance(4000)
    assert nothing_open(world)
    assert families(world)[FAMILY].joined_slots == 0
    for winner in (task, idle):
        answer = decide(world, 0, winner)
        assert answer.error_code == ErrorCode.PRODUCER_FENCED
        assert answer.error_message
    assert not Task(world, 0).decided
    assert visible(world) == []


def test_everybody_has_the_full_timeout_again_after_a_restart(world: World) -> None:
    task = Task(world, 0, timeout_ms=20_000)
    task.write(b"value")
    world.advance(15_000)
    restart(world)
    world.advance(15_000)
    assert decide(world, 0, task).error_code == 0
    assert visible(world) == [b"value"]


def test_a_wall_clock_that_is_set_ends_nothing(world: World) -> None:
    task = Task(world, 0, timeout_ms=5_000)
    task.write(b"value")
    world.clock.jump(86_400_000)
    world.advance(2000)
    assert families(world)[FAMILY].open_slots == 1
    assert decide(world, 0, task).error_code == 0


def test_a_restart_after_weeks_still_knows_what_was_decided(world: World) -> None:
    task = Task(world, 7)
    task.write(b"value")
    decide(world, 7, task)
    world.advance(4_000_000)
    assert families(world)[FAMILY].slots == 0, "the slots have expired"
    restart(world)
    assert Task(world, 7).decided
    fresh = Task(world, 8)
    assert fresh.producer_id != task.producer_id
    assert task.write(b"zombie", partition=2) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    fresh.write(b"next")
    decide(world, 8, fresh)
    assert visible(world) == [b"next", b"value"]


def test_a_family_that_may_be_forgotten_is(world: World) -> None:
    task = Task(world, 0)
    task.write(b"value")
    assert decide(world, 0, task, forget=True).error_code == 0
    assert decide(world, 0, task, forget=True).already_decided, "its answer may have got lost"
    world.advance(FORGET_AFTER_MS + 3_600_000)
    assert families(world) == {}
    restart(world)
    assert families(world) == {}
    assert visible(world) == [b"value"]


# Waiting for markers


def test_the_answer_waits_for_the_markers_and_says_so_when_it_cannot(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Any] = []
    write_markers = MarkerWriter.write
    monkeypatch.setattr(MarkerWriter, "write", lambda *arguments: held.append(arguments))
    task = Task(world, 0)
    task.write(b"value")
    exchange = begin_decision(world, 0, task, timeout_ms=3_000)
    world.advance(2_000)
    assert not exchange.answered
    world.advance(2_000)
    assert exchange.answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    again = begin_decision(world, 0, task, timeout_ms=60_000)
    following = Task(world, 1)
    following.write(b"following")
    after = begin_decision(world, 1, following, timeout_ms=60_000)
    world.settle()
    assert not again.answered
    assert not after.answered, "it waits for the markers of the last decision, too"
    assert visible(world) == []
    monkeypatch.setattr(MarkerWriter, "write", write_markers)
    for arguments in held:
        write_markers(*arguments)
    world.settle()
    assert (again.answer.error_code, again.answer.already_decided) == (0, True)
    assert (after.answer.error_code, after.answer.already_decided) == (0, False)
    assert visible(world) == [b"following", b"value"]
    world.advance(120_000)
    check_at_rest(world)


def test_many_markers_come_in_parts_so_that_others_are_served(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_completion, "MARKERS_AT_ONCE", 4)
    tasks = [Task(world, 0) for _ in range(7)]
    for task in tasks:
        for partition in range(3):
            task.write(b"value", partition=partition)
    exchange = begin_decision(world, 0, *tasks)
    world.settle()
    assert not exchange.answered
    world.advance(10)
    assert exchange.answer.error_code == 0
    assert len(visible(world)) == 21


def test_a_topic_that_is_deleted_does_not_hold_up_a_decision(world: World) -> None:
    task = Task(world, 0)
    task.write(b"value")
    world.ask(ApiKey.DELETE_TOPICS, 4, topic_names=[TOPIC], timeout_ms=1000)
    assert decide(world, 0, task).error_code == 0


# Requests that are refused


@pytest.mark.parametrize("transactional_id", ["family:query/0", "family:query/5", "family:", "family:a/b/c"])
def test_no_producer_takes_or_ends_a_slot_by_itself(world: World, transactional_id: str) -> None:
    task = Task(world, 0)
    task.write(b"value")
    for producer_id, epoch in ((-1, -1), (task.producer_id, task.epoch)):
        answer = world.ask(
            ApiKey.INIT_PRODUCER_ID,
            5,
            transactional_id=transactional_id,
            transaction_timeout_ms=1000,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for commit in (True, False):
        values = {**task.slot, "transactional_id": transactional_id, "committed": commit}
        for version in (3, 5):
            ended = world.ask(ApiKey.END_TXN, version, **values)
            assert ended.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert visible(world) == []
    assert decide(world, 0, task).error_code == 0


@pytest.mark.parametrize("family", ["", "a/b", "a b", "x" * 250, "é"])
def test_names_that_could_be_misread_are_refused(world: World, family: str) -> None:
    for answer in (
        Task(world, 0, family=family),
        decide(world, 0, family=family),
        renew(world, 0, family=family),
    ):
        error = answer.error if isinstance(answer, Task) else answer.error_code
        assert error == ErrorCode.INVALID_REQUEST
    assert families(world) == {}


def test_numbers_out_of_bounds_are_refused(world: World) -> None:
    assert Task(world, -1).error is ErrorCode.INVALID_REQUEST
    for timeout_ms in (0, -1, 900_001):
        assert Task(world, 0, timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert decide(world, -1).error_code == ErrorCode.INVALID_REQUEST
    assert renew(world, -1).error_code == ErrorCode.INVALID_REQUEST
    slot = {"transactional_id": "family:query/0", "producer_id": 0, "producer_epoch": 0}
    answer = world.ask(ApiKey.FAMILY_DECIDE, 0, family=FAMILY, batch_id=0, commit=True, winners=[slot] * 10_001)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_there_are_so_many_families_and_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family_coordinator, "MAX_FAMILIES", 2)
    names = [f"family-{number}" for number in range(10)]
    joined = [name for name in names if Task(world, 0, family=name).error is ErrorCode.NONE]
    assert len(joined) == 4, "two in each of two partitions"
    (refused, *_) = [name for name in names if name not in joined]
    assert Task(world, 0, family=refused).error is ErrorCode.POLICY_VIOLATION
    assert decide(world, 0, family=refused).error_code == ErrorCode.POLICY_VIOLATION
    assert Task(world, 0, family=joined[0]).error is ErrorCode.NONE


def test_a_decision_that_does_not_fit_is_refused_and_can_still_be_aborted(world: World) -> None:
    tasks = [Task(world, 0) for _ in range(8)]
    for task in tasks:
        assert task.write(b"value") is ErrorCode.NONE
    limit = {"name": "max.message.bytes", "value": "700", "config_operation": 0}
    resource = {"resource_type": 2, "resource_name": "__transaction_state", "configs": [limit]}
    assert world.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses[0].error_code == 0
    answer = decide(world, 0, *tasks)
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in answer.error_message
    assert families(world)[FAMILY].open_slots == 8
    assert decide(world, 0, commit=False).error_code == 0
    assert nothing_open(world)
    assert visible(world) == []


# Looking at them


def test_families_are_listed_with_what_they_decided_and_have_open(world: World) -> None:
    task, _ = Task(world, 3), Task(world, 3)
    task.write(b"value")
    (found,) = families(world).values()
    assert (found.name, found.last_batch_id, found.slots, found.joined_slots, found.open_slots) == (FAMILY, -1, 2, 2, 1)
    decide(world, 3, task)
    (found,) = families(world).values()
    assert (found.last_batch_id, found.joined_slots, found.completing_slots, found.forgotten) == (3, 0, 0, False)
    assert found.decided_ms == world.clock.wall_ms
    assert world.ask(ApiKey.FAMILY_LIST, 0, families=["nobody"]).families == []


def decide_with_plan(world: World, batch_id: int, text: bytes, *, family: str = FAMILY) -> Any:
    digest = sha256(text).digest()
    return world.ask(
        ApiKey.FAMILY_DECIDE, 1, family=family, batch_id=batch_id, commit=True, rows=7, plan_digest=digest, plan=text
    )


def test_what_a_decision_was_made_of_is_recalled_and_survives_a_crash(world: World) -> None:
    nobody = world.ask(ApiKey.FAMILY_RECALL, 0, family=FAMILY)
    assert (nobody.error_code, nobody.last_batch_id, nobody.rows, nobody.plan) == (0, -1, -1, b"")
    assert decide_with_plan(world, 3, b"offsets of batch 3").error_code == 0
    assert decide_with_plan(world, 3, b"other offsets").already_decided
    restart(world)
    found = world.ask(ApiKey.FAMILY_RECALL, 0, family=FAMILY)
    assert (found.error_code, found.last_batch_id, found.rows, found.plan) == (0, 3, 7, b"offsets of batch 3")
    assert found.plan_digest == sha256(b"offsets of batch 3").digest()
    assert world.ask(ApiKey.FAMILY_RECALL, 0, family="a/b").error_code == ErrorCode.INVALID_REQUEST


def test_plans_that_families_keep_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert decide_with_plan(world, 0, bytes(MAX_PLAN_BYTES + 1)).error_code == ErrorCode.INVALID_REQUEST
    monkeypatch.setattr(family_coordinator, "MAX_PLANS_BYTES", 100)
    names = [f"family-{number}" for number in range(10)]
    for batch_id in (0, 1):
        for name in names:
            assert decide_with_plan(world, batch_id, bytes(60), family=name).error_code == 0
    found = [world.ask(ApiKey.FAMILY_RECALL, 0, family=name) for name in names]
    assert [each.plan_digest for each in found] == [sha256(bytes(60)).digest()] * 10
    assert sum(each.plan == bytes(60) for each in found) == 2, "one in each of two partitions"

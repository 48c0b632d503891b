"""Commands that move partitions: what they refuse and show, how much they move at once and what they wait for."""

import dataclasses
import errno
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import pytest

from cordwood.administration.cluster import mover as moving_along
from cordwood.administration.cluster.forgetting import next_step
from cordwood.administration.cluster.gathering import Gathered, Reassignment, placed
from cordwood.administration.cluster.mover import (
    SMALL_AT_ONCE,
    Mover,
    Refused,
    led_by_others,
    refusals_in_words,
    waits_in_words,
)
from cordwood.administration.cluster.moving import (
    leaders_in_words,
    lifting_in_words,
    stuck_failure,
    stuck_in_words,
)
from cordwood.administration.cluster.plans import check_empty
from cordwood.administration.cluster.view import NodeView, PartitionState
from cordwood.administration.connection import Connection
from cordwood.cli.cluster.carrying_out import carry_out, loads_table
from cordwood.client.settings import Address
from cordwood.cluster.planner.balance import NoPlace, Placed, PlannedMove, plan_drain
from cordwood.model.failure import ExitCode, Failure

ADDRESS = Address("127.0.0.1", 1)
MIB = 1 << 20


def node(node_id: int, **more: Any) -> NodeView:
    return NodeView(node_id, ADDRESS, None, more.pop("fenced", False), False, **more)


def gathered(*partitions: Placed, nodes: Sequence[int] = (1, 2, 3), moves: Sequence[Reassignment] = ()) -> Gathered:
    return Gathered(ADDRESS, tuple(map(node, nodes)), partitions, tuple(moves))


def test_a_broker_that_died_as_the_target_of_a_move_is_drained_to_the_brokers_that_are_left() -> None:
    # Node 4 was about to take the place of node 3. With it the partition has four replicas, and three nodes are left.
    state = PartitionState("orders", 0, 1, (1, 2, 4, 3), (1, 2, 3))
    move = Reassignment("orders", 0, (1, 2, 4, 3), (4,), (3,))
    partitions = placed([state], {}, [move])
    (planned,) = plan_drain(partitions, dict.fromkeys((1, 2, 3)), [4])
    assert (planned.before, planned.after) == ((1, 2, 4), (1, 2, 3))


def with_states(*found: PartitionState, nodes: Sequence[int] = (1, 2)) -> Gathered:
    cluster = gathered(*placed(found, {}, ()), nodes=nodes)
    return dataclasses.replace(cluster, found=found)


LONE = PartitionState("aaa", 3, -1, (3,), (3,))
PAIR = PartitionState("t", 0, 1, (1, 3), (1,))


def test_partitions_whose_records_only_absent_nodes_have_cannot_be_moved() -> None:
    cluster = with_states(
        LONE,
        PAIR,
        LONE._replace(partition=4, leader=3),
        LONE._replace(topic="all lost", isr=()),
        LONE._replace(topic="elected soon", replicas=(1, 3), isr=(1,)),
        LONE._replace(topic="eligible", replicas=(1, 3), elr=(1,)),
    )
    assert list(cluster.stuck) == [("aaa", 3), ("aaa", 4), ("all lost", 3)]
    assert [each.topic for each in cluster.movable] == ["t", "elected soon", "eligible"]


def test_a_drained_node_that_got_replicas_meanwhile_is_named_and_one_with_lone_records_is_not() -> None:
    cluster = with_states(LONE, PAIR, nodes=(1, 2))
    check_empty(cluster, [2])
    with pytest.raises(Failure, match=r"node 3 got replicas while the plan was looked at: t-0$") as refused:
        check_empty(cluster, [3])
    assert "cordwood cluster drain 3" in refused.value.hint


def test_moves_that_could_not_be_undone_do_not_begin(tmp_path: Path) -> None:
    move = PlannedMove("t", 0, (1, 3), (1, 2), MIB)
    prepared: list[bool] = []
    with pytest.raises(Failure, match="cannot be written: No such file or directory; nothing was changed"):
        carry_out(
            cast("Connection", None),
            with_states(PAIR, nodes=(1, 2, 3)),
            [move],
            yes=True,
            dry_run=False,
            at_once=1,
            throttle=None,
            undo_file=str(tmp_path / "nowhere" / "undo.json"),
            as_json=True,
            prepare=lambda: prepared.append(True),
        )
    assert prepared == []


def test_partitions_that_cannot_be_moved_are_named_with_the_nodes_that_have_their_records() -> None:
    several = LONE._replace(topic="b", replicas=(4, 3), isr=(4,), elr=(3,))
    lost, one, two = stuck_in_words([LONE, LONE._replace(partition=4), several, LONE._replace(topic="c", isr=())], [1])
    assert lost.startswith(
        "1 partition cannot be moved: no replica has every acknowledged record. Start a broker on the disk that it "
        "had, or accept the loss"
    )
    assert one == (
        "2 partitions cannot be moved: only node 3, which is away, has their records. Start it, or give the records up "
        "(`cordwood cluster accept-loss aaa 3 --on NODE`): aaa-3, aaa-4"
    )
    assert "only nodes 3, 4, which are away, have their records. Start one of them" in two


def test_partitions_that_all_replicas_lost_do_not_wait_for_a_node_that_is_away() -> None:
    lost = LONE._replace(topic="c", isr=())
    alone = stuck_failure([lost])
    assert alone.message == "1 partition cannot be moved, since no replica has every acknowledged record: c-3"
    assert alone.hint == (
        "start a broker on the disk that it had, or accept the loss with `cordwood cluster accept-loss`, and repeat "
        "the command"
    )
    both = stuck_failure([lost, LONE])
    assert both.message == (
        "1 partition cannot be moved, since only nodes that are away have the records: aaa-3; "
        "1 partition cannot be moved, since no replica has every acknowledged record: c-3"
    )
    assert both.hint.startswith("start these nodes")


def test_a_drain_without_room_names_the_cordoned_nodes_that_serve() -> None:
    nodes = (node(1), node(2, cordoned=True), node(3), node(4, cordoned=True), node(5, fenced=True, cordoned=True))
    cluster = Gathered(ADDRESS, nodes, (Placed("t", 0, (1, 3)),))
    assert list(cluster.racks) == [1, 3]
    with pytest.raises(NoPlace, match=r"uncordon brokers 2, 4 \(`cordwood cluster uncordon 2 4`\)"):
        plan_drain(cluster.movable, cluster.racks, [3], cluster.cordoned)


def test_a_node_that_neither_runs_nor_has_replicas_is_refused_with_the_nodes_that_there_are() -> None:
    cluster = gathered(Placed("t", 0, (1, 5)))
    cluster.check_known([1, 5])
    with pytest.raises(Failure, match="there is no node 9") as refusal:
        cluster.check_known([1, 9])
    assert refusal.value.hint == "the nodes are 1, 2, 3, 5"
    assert refusal.value.exit_code is ExitCode.NOT_FOUND


def test_a_move_to_a_node_that_does_not_run_is_refused_and_one_that_keeps_it_is_not() -> None:
    cluster = gathered(Placed("t", 0, (1, 5)), Placed("t", 1, (1, 2)))
    cluster.check_targets([PlannedMove("t", 0, (1, 5), (5, 2), 0)])
    with pytest.raises(Failure, match="node 5 does not run, and would get replicas of t-1"):
        cluster.check_targets([PlannedMove("t", 1, (1, 2), (1, 5), 0)])


def test_the_table_of_a_plan_has_a_broker_that_is_absent() -> None:
    cluster = gathered(Placed("t", 0, (4, 1), MIB), nodes=(1, 2))
    columns, rows = loads_table(cluster, [PlannedMove("t", 0, (4, 1), (2, 1), MIB)])
    assert columns[:4] == ["broker", "state", "replicas", "after"]
    assert [row[:4] for row in rows] == [[1, "serves", 1, 1], [2, "serves", 0, 1], [4, "absent", 1, 0]]


def test_the_table_of_a_plan_shows_traffic_that_was_watched() -> None:
    columns, rows = loads_table(gathered(Placed("t", 0, (1, 2), MIB, 2048.0), nodes=(1, 2)), [])
    assert columns[-2:] == ["written", "afterwards"]
    assert [row[-2:] for row in rows] == [["2.0 KiB/s", "2.0 KiB/s"], ["0 B/s", "0 B/s"]]


def test_moves_that_wait_for_a_broker_name_it_and_the_partitions() -> None:
    moving = {("t", number): (1, 4) for number in range(5)} | {("u", 0): (2, 3)}
    nodes = [node(1), node(2), node(3, fenced=True, starting=True)]
    absent, starting = (text.split(". ")[0] for text in sorted(waits_in_words(moving, nodes), reverse=True))
    assert absent == "waiting for node 4, which does not run: t-0, t-1, t-2 and 2 more"
    assert starting == "waiting for node 3, which is starting: u-0"
    assert waits_in_words({("t", 0): (1, 2)}, nodes) == []


@pytest.mark.parametrize(
    ("resource", "command"),
    [
        (("broker", "4"), "`cordwood config alter --broker 4 --delete a --delete b`"),
        (("topic", "t"), "`cordwood config alter --topic t --delete a --delete b`"),
    ],
)
def test_a_throttle_that_stays_is_said_with_the_command_that_lifts_it(resource: tuple[str, str], command: str) -> None:
    assert lifting_in_words(*resource, ("a", "b"), "timed out").endswith(command)


def test_a_node_that_cannot_be_forgotten_yet_comes_with_the_next_step() -> None:
    cluster = gathered(Placed("t", 0, (2, 3)), nodes=(1, 2))
    assert next_step(9, cluster) == "the nodes are 1, 2, 3"
    assert next_step(3, cluster) == "`cordwood cluster drain 3` moves its replicas to other nodes"
    assert next_step(2, cluster).endswith("then stop it, and forget it")
    assert next_step(1, cluster) == "stop node 1 first: it has no replicas"
    assert "`cordwood cluster accept-loss aaa 3`, with `--on NODE`" in next_step(3, with_states(LONE, PAIR))


class Cluster:
    """Answers of a cluster that ends every move at once, and elects the first replicas at the second look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[list[tuple[str, int]]] = []
        self.elected: list[tuple[str, int]] = []
        self.leaders: dict[tuple[str, int], int] = {}
        self.elects = True
        self.refuses: list[tuple[str, int]] = []
        for name in ("begin", "reassignments", "nodes_of", "partitions_of", "elect"):
            monkeypatch.setattr(moving_along, name, getattr(self, name))
        monkeypatch.setattr(moving_along, "SOONEST_S", 0.0)

    def begin(self, _address: object, moves: Sequence[tuple[str, int, object]], _timeout_s: float) -> list[Refused]:
        self.begun.append([(topic, partition) for topic, partition, _ in moves])
        return [Refused(*key, "REFUSED", "not this one") for key in self.begun[-1] if key in self.refuses]

    def reassignments(self, _address: object, _timeout_s: float) -> list[Reassignment]:
        return []

    def nodes_of(self, _address: object, _timeout_s: float) -> tuple[str, list[NodeView]]:
        return "id", [node(1), node(2)]

    def partitions_of(self, _address: object, _topics: object, _timeout_s: float) -> list[PartitionState]:
        return [PartitionState(*key, leader, (2, 1), (1, 2)) for key, leader in self.leaders.items()]

    def elect(self, _address: object, _kind: int, keys: Sequence[tuple[str, int]], _timeout_s: float) -> None:
        self.elected += keys
        if self.elects:
            self.leaders = dict.fromkeys(self.leaders, 2)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def mover(moves: Sequence[PlannedMove], at_once: int = 2, say: Callable[[str], None] = lambda text: None) -> Mover:
    return Mover(cast("Connection", type("Fake", (), {"timeout_s": 1.0})()), gathered(), moves, at_once, say, None)


def test_few_large_partitions_and_many_small_ones_move_at_once(cluster: Cluster) -> None:
    large = [PlannedMove("large", number, (1,), (2,), 100 * MIB) for number in range(5)]
    small = [PlannedMove("small", number, (1,), (2,), 0) for number in range(SMALL_AT_ONCE + 1)]
    moves = mover([*large, *small])
    moves.run()
    assert [len(each) for each in cluster.begun] == [2 + SMALL_AT_ONCE, 3, 1]
    assert moves.moved == len(large) + len(small)


def test_moves_that_wait_for_several_nodes_say_so_once_and_again_when_a_wait_comes_back(cluster: Cluster) -> None:
    said: list[str] = []
    moves = mover([], say=lambda text: said.append(text.split(",")[0]))
    waits = {("t", 0): (1, 4), ("u", 0): (1, 5)}
    for moving in (waits, waits, waits, {("t", 0): (1, 4)}, waits):
        moves.moving = dict(moving)
        moves.say_waits()
    assert said == ["waiting for node 4", "waiting for node 5", "waiting for node 5"]


def test_moves_end_when_the_first_replicas_lead(cluster: Cluster) -> None:
    cluster.leaders = {("t", 0): 1, ("t", 1): 2, ("other", 0): 1}
    moves = mover([PlannedMove("t", number, (1, 2), (2, 1), 0) for number in range(2)])
    moves.run()
    assert moves.await_leaders() == []
    assert cluster.elected == [("t", 0)]


def test_a_rebalance_that_moves_nothing_has_the_first_replicas_elected(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.leaders = {("t", 0): 1, ("t", 1): 2, ("u", 0): 1}
    found = with_states(*cluster.partitions_of(None, (), 1.0))
    move_all(found, [], tmp_path / "undo.json", every_leader=True, as_json=False, dry_run=True)
    assert "2 partitions are not led by their first replicas; a rebalance has them" in capsys.readouterr().out
    assert cluster.elected == []
    move_all(found, [], tmp_path / "undo.json", every_leader=True, as_json=False)
    assert cluster.elected == [("t", 0), ("u", 0)]
    told = capsys.readouterr().out
    assert "2 partitions are not led by their first replicas; electing." in told
    assert "Each partition that can be is led by its first replica." in told


def test_all_leaders_are_looked_at_after_the_moves_of_a_rebalance(cluster: Cluster, tmp_path: Path) -> None:
    cluster.leaders = {("t", 0): 1, ("other", 0): 1}
    moves = [PlannedMove("t", 0, (1, 2), (2, 1), 0)]
    move_all(with_states(), moves, tmp_path / "undo.json", every_leader=True)
    assert cluster.elected == [("t", 0), ("other", 0)]


def test_no_election_is_asked_for_where_nobody_leads_or_the_first_replica_has_no_room() -> None:
    found = [PartitionState("t", 0, -1, (1, 2), (1,)), PartitionState("t", 1, 1, (2, 1), (1, 2))]
    preferred = {("t", 0): 1, ("t", 1): 2}
    assert led_by_others(found, preferred, [node(1), node(2, disk_full=True)]) == []
    assert led_by_others(found, preferred, [node(1), node(2)]) == [found[1]]


def test_leaders_that_do_not_move_are_waited_for_a_bounded_time_and_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving_along, "LEADERS_S", 0.0)
    cluster.elects = False
    cluster.leaders = {("t", 0): 1}
    moves = mover([PlannedMove("t", 0, (1, 2), (2, 1), 0)])
    moves.run()
    elsewhere = moves.await_leaders()
    assert "1 partition still had other leaders than the first of their replicas: t-0" in leaders_in_words(elsewhere)


def test_a_first_replica_that_does_not_run_is_not_waited_for(cluster: Cluster) -> None:
    cluster.leaders = {("t", 0): 1}
    moves = mover([PlannedMove("t", 0, (1, 9), (9, 1), 0)])
    moves.run()
    assert moves.await_leaders() == []


def move_all(cluster: Gathered, moves: Sequence[PlannedMove], undo: Path | None, **more: Any) -> None:
    options: dict[str, Any] = {"yes": True, "dry_run": False, "at_once": 2, "throttle": None, "as_json": True, **more}
    connection = cast("Connection", type("Fake", (), {"timeout_s": 1.0})())
    carry_out(connection, cluster, moves, undo_file=None if undo is None else str(undo), **options)


def test_a_refused_move_stops_no_other_and_the_command_fails_at_its_end(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.refuses = [("small", 0)]
    moves = [PlannedMove("small", number, (1,), (2,), 0) for number in range(SMALL_AT_ONCE + 50)]
    with pytest.raises(Failure, match="1 move refused:\nsmall-0: not this one"):
        move_all(gathered(), moves, tmp_path / "undo.json")
    told = json.loads(capsys.readouterr().out)
    assert (told["moved"], [each["partition"] for each in told["refused"]]) == (SMALL_AT_ONCE + 49, [0])
    assert (tmp_path / "undo.json").exists()


def test_a_command_of_which_no_move_began_leaves_no_file_to_undo_it(cluster: Cluster, tmp_path: Path) -> None:
    cluster.refuses = [("t", 0)]
    with pytest.raises(Failure):
        move_all(gathered(), [PlannedMove("t", 0, (1,), (2,), 0)], tmp_path / "undo.json")
    assert not (tmp_path / "undo.json").exists()


def test_the_file_that_undoes_earlier_moves_is_kept_and_nothing_is_changed(cluster: Cluster, tmp_path: Path) -> None:
    undo = tmp_path / "undo.json"
    move_all(gathered(), [PlannedMove("t", 0, (1, 2), (3, 2), 0)], undo)
    original = undo.read_text()
    prepared: list[bool] = []
    for refused in ([], [("t", 0)]):
        cluster.refuses = refused
        with pytest.raises(Failure, match=r"undo\.json exists already, .*; nothing was changed") as refusal:
            move_all(gathered(), [PlannedMove("t", 0, (3, 2), (3, 1), 0)], undo, prepare=lambda: prepared.append(True))
        assert "--undo-file" in refusal.value.hint
        assert undo.read_text() == original
    assert (prepared, len(cluster.begun)) == ([], 1)


def test_commands_of_one_second_write_different_files_to_undo_them(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.gmtime", lambda: time.struct_time((2026, 11, 17, 19, 0, 0, 0, 1, 0)))
    for replicas in ((1,), (2,), (3,)):
        move_all(gathered(), [PlannedMove("t", 0, replicas, (2, 1), 0)], None)
    noted = {path.name: json.loads(path.read_text())["partitions"][0]["replicas"] for path in tmp_path.iterdir()}
    stem = "cordwood-undo-20261117-190000"
    assert noted == {f"{stem}.json": [1], f"{stem}-2.json": [2], f"{stem}-3.json": [3]}


def test_a_command_that_is_interrupted_before_its_moves_leaves_no_file_to_undo_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move_all(gathered(), [PlannedMove("t", 0, (1,), (2,), 0)], tmp_path / "undo.json", prepare=interrupted)
    assert (cluster.begun, list(tmp_path.iterdir())) == ([], [])


def test_a_file_to_undo_moves_that_is_written_in_part_is_removed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_plan: object, file: TextIO, **_options: object) -> None:
        file.write("{")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(Failure, match="cannot be written: No space left on device; nothing was changed"):
        move_all(gathered(), [PlannedMove("t", 0, (1,), (2,), 0)], tmp_path / "undo.json")
    assert (cluster.begun, list(tmp_path.iterdir())) == ([], [])


def test_a_drain_moves_what_it_can_and_fails_for_what_is_left(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moves = [PlannedMove("t", 0, (1, 3), (1, 2), 0)]
    with pytest.raises(Failure, match=r"1 partition cannot be moved, .*: aaa-3"):
        move_all(with_states(LONE, PAIR), moves, tmp_path / "undo.json", left=[LONE])
    told = json.loads(capsys.readouterr().out)
    assert (told["moved"], told["cannot_be_moved"]) == (1, [{"topic": "aaa", "partition": 3}])
    move_all(with_states(LONE, PAIR), moves, tmp_path / "undo.json", left=[LONE], dry_run=True, as_json=False)
    shown = capsys.readouterr().out
    assert "1 partition to move" in shown
    assert "1 partition cannot be moved: only node 3, which is away" in " ".join(shown.split())


def test_many_refusals_are_counted() -> None:
    refused = [Refused("t", number, "REFUSED", "no") for number in range(12)]
    assert str(refusals_in_words(refused)).splitlines()[-1] == "... and 2 more"

"""Carries out moves of partitions: the plan is shown, then a few partitions move at a time, with progress.

Plans are files in the format of kafka-reassign-partitions, so that both tools read them. Before anything moves, the
present replicas are written to such a file: carried out, it undoes the moves.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final

from cordwood.cli.cluster.gathering import Gathered, Reassignment, names_of
from cordwood.cli.cluster.mover import (
    LEADERS_S,
    Mover,
    Refused,
    led_by_others,
    refusals_in_words,
    targets,
    waits_in_words,
)
from cordwood.cli.cluster.undo_file import write_undo
from cordwood.cli.cluster.view import NOBODY_IS_COMPLETE, PartitionState
from cordwood.cli.config.changes import change_broker, change_settings, topic_resource
from cordwood.cli.connection import Connection
from cordwood.cli.terminal.asking import confirm
from cordwood.cli.terminal.output import print_json, print_table, remark, say
from cordwood.cluster.planner.balance import Key, PlannedMove, after_moves, loads_of
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import count_in_words, size_bytes, size_in_words

MOVES_SHOWN: Final = 50
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_THROTTLED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def plan_as_json(moves: Iterable[tuple[str, int, Sequence[int]]]) -> dict[str, Any]:
    """A plan in the format of kafka-reassign-partitions."""
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": partition, "replicas": list(replicas)} for topic, partition, replicas in moves
        ],
    }


def read_plan(path: str) -> list[tuple[str, int, tuple[int, ...]]]:
    """The moves of a plan's file. Raises Failure."""
    try:
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        return [
            (str(each["topic"]), int(each["partition"]), tuple(int(broker) for broker in each["replicas"]))
            for each in plan["partitions"]
        ]
    except FileNotFoundError:
        raise Failure("NO_PLAN", f"{path} does not exist", "", ExitCode.NOT_FOUND) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(
            "NO_PLAN",
            f"{path} is no plan: {error!r}",
            'as kafka-reassign-partitions: {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}',
            ExitCode.USAGE,
        ) from None


def show_plan(gathered: Gathered, moves: Sequence[PlannedMove]) -> None:
    copied = sum(move.size_bytes for move in moves)
    say(f"{count_in_words(len(moves), 'partition')} to move, {size_in_words(copied)} to copy:")
    print_table(
        ["topic", "partition", "replicas", "become", "copied"],
        [
            (move.topic, move.partition, _ids(move.before), _ids(move.after), size_in_words(move.size_bytes))
            for move in moves[:MOVES_SHOWN]
        ],
    )
    if len(moves) > MOVES_SHOWN:
        say(f"... and {len(moves) - MOVES_SHOWN} more (--json shows all)")
    print_table(*loads_table(gathered, moves))
    filled = {broker for move in moves for broker in move.after if broker not in move.before}
    for broker in sorted(node.node_id for node in gathered.nodes if node.cordoned and node.node_id in filled):
        remark(f"node {broker} is cordoned: `cordwood cluster uncordon {broker}` if it is to get new topics, too")
    for text in waits_in_words({move.key: move.after for move in moves}, gathered.nodes):
        remark(f"these moves end later: {text}")


def loads_table(gathered: Gathered, moves: Sequence[PlannedMove]) -> tuple[list[str], list[list[object]]]:
    """The columns and rows that compare brokers before and after the moves. Traffic is shown if it was watched."""
    states = gathered.states
    before, after = (loads_of(each, states) for each in (gathered.partitions, after_moves(gathered.partitions, moves)))
    traffic = any(load.traffic for load in before.values())
    columns = ["broker", "state", "replicas", "after", "leads", "then", "size", "becomes"]
    rows: list[list[object]] = []
    for broker, state in states.items():
        old, new = before[broker], after[broker]
        sizes = size_in_words(old.size_bytes), size_in_words(new.size_bytes)
        rows.append([broker, state, old.replicas, new.replicas, old.leads, new.leads, *sizes])
        if traffic:
            rows[-1] += [f"{size_in_words(int(load.traffic))}/s" for load in (old, new)]
    return [*columns, *(["written", "afterwards"] if traffic else [])], rows


def _ids(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas))


def carry_out(
    connection: Connection,
    gathered: Gathered,
    moves: Sequence[PlannedMove],
    *,
    yes: bool,
    dry_run: bool,
    at_once: int,
    throttle: str | None,
    undo_file: str | None,
    as_json: bool,
    joined: Sequence[Reassignment] = (),
    left: Sequence[PartitionState] = (),
    prepare: Callable[[], None] = lambda: None,
    every_leader: bool = False,
    afterwards: str = "",
) -> None:
    """Shows the plan, asks, prepares, and moves. Returns when everything has moved, and the first of the new replicas
    lead. `joined`: moves under way that the command also waits for; `left`: partitions that cannot be moved.
    `every_leader`: the first replica of every partition is to lead, also of those that do not move. `afterwards`: a
    text after moves. Raises Failure, after all other moves if a move was refused or partitions are left."""
    rate = rate_of(throttle)
    gathered.check_targets(moves)
    led_elsewhere = led_by_others(gathered.found, _first_replicas(gathered), gathered.nodes) if every_leader else []
    if not as_json:
        _show(gathered, moves, joined, left, led_elsewhere, dry_run=dry_run)
    result = {"plan": plan_as_json(targets(moves)), "cannot_be_moved": [_named(each) for each in left]}
    if dry_run or not (moves or joined or led_elsewhere):
        if not dry_run:
            prepare()
        if as_json:
            print_json({**result, "moved": 0})
        if left and not dry_run:
            raise stuck_failure(left)
        return
    progress = None if as_json else _Progress(len(moves) + len(joined)).show
    mover = Mover(connection, gathered, moves, at_once, progress, joined, every_leader=every_leader)
    undo = None
    if moves:
        confirm("moving", f"Move {count_in_words(len(moves), 'partition')}?", yes=yes)
        undo = write_undo(undo_file, plan_as_json((move.topic, move.partition, move.before) for move in moves))
    throttled = _throttled(connection, gathered, sorted({move.topic for move in moves}), rate)
    elsewhere = _move(mover, prepare, throttled, undo, every_leader=every_leader)
    if elsewhere:
        remark(leaders_in_words(elsewhere))
    if as_json:
        moved = {"moved": len(moves) - len(mover.refused), "leaders_elsewhere": len(elsewhere)}
        refused = [{**_named(each), "error": each.error, "message": each.message} for each in mover.refused]
        print_json({**result, **moved, "refused": refused, "undo_file": undo if mover.may_have_begun else None})
    else:
        if moves or joined:
            say(f"{count_in_words(mover.moved, 'partition')} moved.")
        if every_leader and not elsewhere:
            say("Each partition that can be is led by its first replica.")
        if afterwards and mover.moved:
            say(afterwards)
    if mover.refused:
        raise refusals_in_words(mover.refused)
    if left:
        raise stuck_failure(left)


def _show(
    gathered: Gathered,
    moves: Sequence[PlannedMove],
    joined: Sequence[Reassignment],
    left: Sequence[PartitionState],
    led_elsewhere: Sequence[PartitionState],
    *,
    dry_run: bool,
) -> None:
    """Shows the moves, the moves under way, the elections, and the partitions that cannot be moved."""
    if moves:
        show_plan(gathered, moves)
    elif not joined and not left:
        say("There is nothing to move.")
    if joined:
        say(f"{count_in_words(len(joined), 'move')} under way already: {names_of(move.key for move in joined)}.")
    if led_elsewhere:
        electing = "a rebalance has them elected" if dry_run else "electing"
        say(f"{_not_led_by_first(len(led_elsewhere))}; {electing}.")
    for line in stuck_in_words(left, [node.node_id for node in gathered.nodes]):
        say(line)


def _move(
    mover: Mover,
    prepare: Callable[[], None],
    throttled: AbstractContextManager[None],
    undo: str | None,
    *,
    every_leader: bool,
) -> list[PartitionState]:
    """Prepares, and moves. Returns the partitions that are not led by the first of their replicas. The file that undoes
    the moves is removed if no move began. Raises Failure."""
    try:
        prepare()
        with throttled:
            mover.run()
        return mover.await_leaders() if mover.may_have_begun or every_leader else []
    except KeyboardInterrupt:
        remark(
            f"interrupted: {count_in_words(len(mover.moving), 'partition')} move on, {len(mover.waiting)} were not "
            "begun. `cordwood cluster reassign --list` shows those under way, --cancel stops them"
            + (f", and --file {undo} undoes what was done" if undo and mover.may_have_begun else "")
        )
        raise
    finally:
        if undo and not mover.may_have_begun:
            os.remove(undo)
            remark("no move began: there is nothing to undo, and the file for it is removed")


def _named(each: PartitionState | Refused) -> dict[str, Any]:
    return {"topic": each.topic, "partition": each.partition}


def _first_replicas(gathered: Gathered) -> dict[Key, int]:
    return {(each.topic, each.partition): each.replicas[0] for each in gathered.found}


def _not_led_by_first(partitions: int) -> str:
    if partitions == 1:
        return "1 partition is not led by its first replica"
    return f"{partitions} partitions are not led by their first replicas"


def stuck_in_words(stuck: Iterable[PartitionState], nodes_that_run: Collection[int]) -> list[str]:
    """A text about partitions that cannot be moved: those that wait for the same nodes together."""
    by_nodes: dict[tuple[int, ...], list[PartitionState]] = {}
    for each in stuck:
        by_nodes.setdefault(tuple(sorted({*each.isr, *each.elr})), []).append(each)
    lines = []
    for nodes, found in sorted(by_nodes.items()):
        if not nodes:
            why = f"{NOBODY_IS_COMPLETE}. Start a broker on the disk that it had, or accept the loss"
        elif len(nodes) == 1:
            why = f"only node {nodes[0]}, which is away, has their records. Start it, or give the records up"
        else:
            ids = ", ".join(map(str, nodes))
            why = f"only nodes {ids}, which are away, have their records. Start one of them, or give the records up"
        first = found[0]
        on = "" if set(nodes_that_run) & set(first.replicas) else " --on NODE"
        names = names_of(((each.topic, each.partition) for each in found), MOVES_SHOWN)
        lines.append(
            f"{count_in_words(len(found), 'partition')} cannot be moved: {why} (`cordwood cluster accept-loss "
            f"{first.topic} {first.partition}{on}`): {names}"
        )
    return lines


def stuck_failure(stuck: Sequence[PartitionState]) -> Failure:
    away = [each for each in stuck if each.isr or each.elr]
    lost = [each for each in stuck if not (each.isr or each.elr)]
    whys = (away, "only nodes that are away have the records"), (lost, NOBODY_IS_COMPLETE)
    return Failure(
        "LEADER_NOT_AVAILABLE",
        "; ".join(
            f"{count_in_words(len(found), 'partition')} cannot be moved, since {why}: "
            f"{names_of((each.topic, each.partition) for each in found)}"
            for found, why in whys
            if found
        ),
        "start these nodes and repeat the command, or give the records up with `cordwood cluster accept-loss`"
        if away
        else "start a broker on the disk that it had, or accept the loss with `cordwood cluster accept-loss`, and "
        "repeat the command",
    )


def leaders_in_words(elsewhere: Sequence[PartitionState]) -> str:
    """A text about partitions that are not led by the first of their replicas."""
    return (
        f"after {LEADERS_S:.0f} s {count_in_words(len(elsewhere), 'partition')} still had other leaders than the first "
        f"of their replicas: {names_of((each.topic, each.partition) for each in elsewhere)}. `cordwood cluster "
        "elect-preferred` tries again, and says why not"
    )


def rate_of(throttle: str | None) -> int | None:
    if throttle is None:
        return None
    try:
        rate = size_bytes(throttle)
    except ValueError as reason:
        raise Failure("USAGE", f"--throttle {throttle}: {reason}", "an example: 50MiB", ExitCode.USAGE) from None
    if rate <= 0:
        raise Failure("USAGE", "--throttle has to be more than 0", "an example: 50MiB", ExitCode.USAGE)
    return rate


@contextmanager
def _throttled(connection: Connection, gathered: Gathered, topics: Sequence[str], rate: int | None) -> Iterator[None]:
    """Limits the rate at which brokers copy replicas that are not in sync, and lifts the limit at the end."""
    if rate is None:
        yield
        return
    brokers_there = [node.node_id for node in gathered.nodes if node.state == "serves"]
    lifts: list[tuple[str, str, Sequence[str], Callable[[], None]]] = [
        *(
            ("broker", str(each), _RATES, partial(change_broker, connection, each, {}, _RATES))
            for each in brokers_there
        ),
        *(
            ("topic", topic, _THROTTLED, partial(change_settings, connection, topic_resource(topic), {}, _THROTTLED))
            for topic in topics
        ),
    ]
    try:
        for broker in brokers_there:
            change_broker(connection, broker, dict.fromkeys(_RATES, str(rate)), ())
        for topic in topics:
            change_settings(connection, topic_resource(topic), dict.fromkeys(_THROTTLED, "*"), ())
        yield
    finally:
        # Any broker lifts the throttle of another one: the target of a move may have died meanwhile.
        for kind, name, settings, lift in lifts:
            try:
                lift()
            except Failure as failure:
                remark(lifting_in_words(kind, name, settings, failure.message))


def lifting_in_words(kind: str, name: str, names: Sequence[str], reason: str) -> str:
    """A text about a throttle that stays, with the command that lifts it."""
    options = " ".join(f"--delete {name}" for name in names)
    when = ", when it runs," if kind == "broker" else ""
    return (
        f"the throttle of {kind} {name} was not lifted ({reason}): lift it{when} with `cordwood config alter --{kind} "
        f"{name} {options}`"
    )


class _Progress:
    """Shows the progress of the moves: on a terminal in one line, elsewhere in a line for each change."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._last = ""

    def show(self, moved: int, moving: int, waiting: int) -> None:
        text = f"{moved} of {self._total} partitions moved, {moving} moving, {waiting} waiting"
        if text != self._last:
            self._last = text
            remark(text)

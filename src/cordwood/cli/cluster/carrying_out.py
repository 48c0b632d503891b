"""Carries out moves of partitions: the plan is shown, then a few partitions move at a time, with progress.

Before anything moves, the present replicas are written to a file in the format of kafka-reassign-partitions: carried
out, it undoes the moves.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from cordwood.administration.cluster.gathering import Gathered, Reassignment, names_of
from cordwood.administration.cluster.mover import (
    Mover,
    Refused,
    led_by_others,
    refusals_in_words,
    targets,
    waits_in_words,
)
from cordwood.administration.cluster.moving import (
    MOVES_SHOWN,
    first_replicas,
    leaders_in_words,
    not_led_by_first,
    plan_as_json,
    rate_of,
    stuck_failure,
    stuck_in_words,
    throttled,
    write_undo,
)
from cordwood.administration.cluster.view import PartitionState
from cordwood.administration.connection import Connection
from cordwood.cli.terminal.asking import confirm
from cordwood.cli.terminal.output import print_json, print_table, remark, say
from cordwood.cluster.planner.balance import PlannedMove, after_moves, loads_of
from cordwood.model.quantities import count_in_words, size_in_words


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
    led_elsewhere = led_by_others(gathered.found, first_replicas(gathered), gathered.nodes) if every_leader else []
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
    mover = Mover(connection, gathered, moves, at_once, remark, progress, joined, every_leader=every_leader)
    undo = None
    if moves:
        confirm("moving", f"Move {count_in_words(len(moves), 'partition')}?", yes=yes)
        undo = write_undo(undo_file, plan_as_json((move.topic, move.partition, move.before) for move in moves), remark)
    limit = throttled(connection, gathered, sorted({move.topic for move in moves}), rate, remark)
    elsewhere = _move(mover, prepare, limit, undo, every_leader=every_leader)
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
        say(f"{not_led_by_first(len(led_elsewhere))}; {electing}.")
    for line in stuck_in_words(left, [node.node_id for node in gathered.nodes]):
        say(line)


def _move(
    mover: Mover,
    prepare: Callable[[], None],
    limit: AbstractContextManager[None],
    undo: str | None,
    *,
    every_leader: bool,
) -> list[PartitionState]:
    """Prepares, and moves. Returns the partitions that are not led by the first of their replicas. The file that undoes
    the moves is removed if no move began. Raises Failure."""
    try:
        prepare()
        with limit:
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

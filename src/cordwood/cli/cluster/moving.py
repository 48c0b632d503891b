"""Carrying out moves of partitions: the plan is shown, then a few partitions move at a time, with progress.

Plans are files in the format of kafka-reassign-partitions, so that both tools read them. Before anything moves, the
present replicas are written to such a file: carried out, it undoes the moves.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import typer

from cordwood.cli.cluster.view import NodeView, first_answer, nodes_of, partitions_of, replica_logs
from cordwood.cli.config.changes import broker_resource, change_settings, topic_resource
from cordwood.cli.connection import Connection, code_name
from cordwood.cli.failure import ExitCode, Failure
from cordwood.cli.output import count_in_words, print_json, print_table, remark, say, size_in_words
from cordwood.cli.raw_request import Address, ask, brokers
from cordwood.cluster.planner.balance import Placed, PlannedMove, after_moves, loads_of
from cordwood.model.quantities import size_bytes
from cordwood.wire.apis import ApiKey

LOOK_AGAIN_S: Final = 0.5
MOVES_SHOWN: Final = 50
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_THROTTLED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@dataclass(frozen=True, slots=True)
class Gathered:
    """A cluster as a plan needs it."""

    address: Address
    nodes: tuple[NodeView, ...]
    partitions: tuple[Placed, ...]

    @property
    def racks(self) -> dict[int, str | None]:
        """The brokers that serve, and their racks."""
        return {node.node_id: node.rack for node in self.nodes if node.state == "serves"}


def gather(connection: Connection) -> Gathered:
    """The brokers and partitions, with the sizes that leaders tell. Raises Failure."""
    timeout_s = connection.timeout_s
    address, (_, nodes) = first_answer(brokers(connection), lambda asked: nodes_of(asked, timeout_s))
    found = partitions_of(address, (), timeout_s)
    logs = replica_logs(nodes, ((each, (each.leader,)) for each in found), timeout_s)
    placed = []
    for each in found:
        log = logs.get((each.leader, each.topic, each.partition))
        placed.append(Placed(each.topic, each.partition, each.replicas, 0 if log is None else log.size_bytes))
    return Gathered(address, tuple(nodes), tuple(placed))


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


def moves_to(gathered: Gathered, targets: Iterable[tuple[str, int, tuple[int, ...]]]) -> list[PlannedMove]:
    """The moves that bring partitions to these replicas. Raises Failure."""
    placed = {(each.topic, each.partition): each for each in gathered.partitions}
    moves = []
    for topic, partition, replicas in targets:
        found = placed.get((topic, partition))
        if found is None:
            raise Failure(
                "UNKNOWN_TOPIC_OR_PARTITION", f"there is no partition {topic}-{partition}", "", ExitCode.NOT_FOUND
            )
        if found.replicas != replicas:
            new = sum(broker not in found.replicas for broker in replicas)
            moves.append(PlannedMove(topic, partition, found.replicas, replicas, new * found.size_bytes))
    return moves


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
    ids = [node.node_id for node in gathered.nodes]
    before, after = loads_of(gathered.partitions, ids), loads_of(after_moves(gathered.partitions, moves), ids)
    print_table(
        ["broker", "replicas", "after", "leads", "then", "size", "becomes"],
        [
            (
                broker,
                before[broker].replicas,
                after[broker].replicas,
                before[broker].leads,
                after[broker].leads,
                size_in_words(before[broker].size_bytes),
                size_in_words(after[broker].size_bytes),
            )
            for broker in ids
        ],
    )


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
) -> None:
    """Shows the plan, asks, and moves. Returns when everything has moved. Raises Failure."""
    rate = rate_of(throttle)
    if not as_json:
        if not moves:
            say("There is nothing to move.")
            return
        show_plan(gathered, moves)
    if dry_run or not moves:
        if as_json:
            print_json({"plan": plan_as_json(_targets(moves)), "moved": 0})
        return
    _confirm(moves, yes=yes)
    undo = undo_file or time.strftime("cordwood-undo-%Y%m%d-%H%M%S.json", time.gmtime())
    with open(undo, "w", encoding="utf-8") as file:
        json.dump(plan_as_json((move.topic, move.partition, move.before) for move in moves), file, indent=1)
    remark(f"{undo} has the present replicas: `cordwood cluster reassign --file {undo}` undoes the moves")
    mover = Mover(connection, moves, at_once, progress=None if as_json else _Progress(moves).show)
    try:
        with _throttled(connection, gathered, sorted({move.topic for move in moves}), rate):
            mover.run()
    except KeyboardInterrupt:
        remark(
            f"interrupted: {count_in_words(len(mover.moving), 'partition')} move on, {len(mover.waiting)} were not "
            "begun. `cordwood cluster reassign --list` shows those under way, --cancel stops them, and "
            f"--file {undo} undoes what was done"
        )
        raise
    if as_json:
        print_json({"plan": plan_as_json(_targets(moves)), "moved": len(moves), "undo_file": undo})
    else:
        say(f"{count_in_words(len(moves), 'partition')} moved.")


def _targets(moves: Iterable[PlannedMove]) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    return ((move.topic, move.partition, move.after) for move in moves)


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


def _confirm(moves: Sequence[PlannedMove], *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(
            "USAGE", "moves need a confirmation, and there is no terminal to ask on", "add --yes", ExitCode.USAGE
        )
    if not typer.confirm(f"Move {count_in_words(len(moves), 'partition')}?"):
        remark("Nothing was changed.")
        raise typer.Exit(ExitCode.FAILED)


@contextmanager
def _throttled(connection: Connection, gathered: Gathered, topics: Sequence[str], rate: int | None) -> Iterator[None]:
    """Limits the rate at which brokers copy replicas that are not in sync, and lifts the limit at the end."""
    if rate is None:
        yield
        return
    brokers_there = [broker_resource(str(broker)) for broker in gathered.racks]
    throttled = [topic_resource(topic) for topic in topics]
    try:
        for broker in brokers_there:
            change_settings(connection, broker, dict.fromkeys(_RATES, str(rate)), ())
        for topic in throttled:
            change_settings(connection, topic, dict.fromkeys(_THROTTLED, "*"), ())
        yield
    finally:
        for resource, names in [*((broker, _RATES) for broker in brokers_there), *((t, _THROTTLED) for t in throttled)]:
            try:
                change_settings(connection, resource, {}, names)
            except Failure as failure:
                remark(f"the throttle of {resource.name} was not lifted ({failure.message}): remove {', '.join(names)}")


Progress = Callable[[int, int, int], None]
"""Takes the numbers of partitions that have moved, are moving and wait."""


class Mover:
    """Moves partitions, a few at a time. A broker that does not answer is replaced by another one."""

    def __init__(
        self, connection: Connection, moves: Sequence[PlannedMove], at_once: int, progress: Progress | None
    ) -> None:
        self._connection = connection
        self._at_once = at_once
        self._progress = progress
        self.waiting = [(move.topic, move.partition, move.after) for move in reversed(moves)]
        self.moving: set[tuple[str, int]] = set()
        self.moved = 0

    def run(self) -> None:
        while self.waiting or self.moving:
            if self.moving:
                under_way = {key[:2] for key in self._ask(reassignments)}
                self.moved += len(self.moving - under_way)
                self.moving &= under_way
            room = self._at_once - len(self.moving)
            self._begin([self.waiting.pop() for _ in range(min(room, len(self.waiting)))])
            if self._progress is not None:
                self._progress(self.moved, len(self.moving), len(self.waiting))
            if self.moving:
                time.sleep(LOOK_AGAIN_S)

    def _begin(self, moves: Sequence[tuple[str, int, Sequence[int]]]) -> None:
        if moves:
            self._ask(lambda address, timeout_s: begin(address, moves, timeout_s))
            self.moving.update(move[:2] for move in moves)

    def _ask(self, question: Callable[[Address, float], Any]) -> Any:
        timeout_s = self._connection.timeout_s
        _, answer = first_answer(brokers(self._connection), lambda address: question(address, timeout_s))
        return answer


def begin(
    address: Address, moves: Iterable[tuple[str, int, Sequence[int] | None]], timeout_s: float
) -> list[tuple[str, int]]:
    """Begins moves, or cancels those without replicas. Returns the partitions. Raises Failure for the first refusal."""
    topics: dict[str, list[Mapping[str, Any]]] = {}
    for topic, partition, replicas in moves:
        wanted = {"partition_index": partition, "replicas": None if replicas is None else list(replicas)}
        topics.setdefault(topic, []).append(wanted)
    values = {
        "timeout_ms": int(timeout_s * 1000),
        "allow_replication_factor_change": True,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    answer = ask(address, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, values, timeout_s)
    done = []
    for topic_answer in answer.responses:
        for each in topic_answer.partitions:
            name = f"{topic_answer.name}-{each.partition_index}"
            if each.error_code:
                raise Failure(code_name(each.error_code), f"{name}: {each.error_message}")
            done.append((topic_answer.name, each.partition_index))
    return done


def reassignments(
    address: Address, timeout_s: float
) -> list[tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """The moves under way: topic, partition, replicas, those added, those that go. Raises Failure."""
    answer = ask(
        address,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        {"timeout_ms": int(timeout_s * 1000), "topics": None},
        timeout_s,
    )
    if answer.error_code:
        raise Failure(code_name(answer.error_code), answer.error_message or "the broker does not list moves")
    return [
        (
            topic.name,
            each.partition_index,
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for topic in answer.topics
        for each in topic.partitions
    ]


class _Progress:
    """Says how far the moves are: on a terminal in one line, elsewhere in a line for each change."""

    def __init__(self, moves: Sequence[PlannedMove]) -> None:
        self._total = len(moves)
        self._last = ""

    def show(self, moved: int, moving: int, waiting: int) -> None:
        text = f"{moved} of {self._total} partitions moved, {moving} moving, {waiting} waiting"
        if text != self._last:
            self._last = text
            remark(text)

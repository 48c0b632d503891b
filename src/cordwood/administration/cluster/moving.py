"""Plans of moves as files, their throttle, and the texts about partitions that cannot move or have other leaders.

Plans are files in the format of kafka-reassign-partitions, so that both tools read them. Before anything moves, the
present replicas are written to such a file: carried out, it undoes the moves.
"""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, Final

from cordwood.administration.cluster.gathering import Gathered, names_of
from cordwood.administration.cluster.mover import (
    LEADERS_S,
)
from cordwood.administration.cluster.view import NOBODY_IS_COMPLETE, PartitionState
from cordwood.administration.config.changes import change_broker, change_settings, topic_resource
from cordwood.administration.connection import Connection
from cordwood.cluster.planner.balance import Key
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import count_in_words, size_bytes

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


def first_replicas(gathered: Gathered) -> dict[Key, int]:
    return {(each.topic, each.partition): each.replicas[0] for each in gathered.found}


def not_led_by_first(partitions: int) -> str:
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
def throttled(
    connection: Connection, gathered: Gathered, topics: Sequence[str], rate: int | None, say: Callable[[str], None]
) -> Iterator[None]:
    """Limits the rate at which brokers copy replicas that are not in sync, and lifts the limit at the end.
    `say` is told of a limit that stays."""
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
                say(lifting_in_words(kind, name, settings, failure.message))


def lifting_in_words(kind: str, name: str, names: Sequence[str], reason: str) -> str:
    """A text about a throttle that stays, with the command that lifts it."""
    options = " ".join(f"--delete {name}" for name in names)
    when = ", when it runs," if kind == "broker" else ""
    return (
        f"the throttle of {kind} {name} was not lifted ({reason}): lift it{when} with `cordwood config alter --{kind} "
        f"{name} {options}`"
    )


def write_undo(path: str | None, plan: Mapping[str, Any], say: Callable[[str], None]) -> str:
    """Writes the plan to a new file at `path`; None: a file in the present directory, with the time in its name.
    Returns the file's path. Raises Failure if no file was made."""
    for name in _names() if path is None else [path]:
        try:
            _write(name, plan)
        except FileExistsError:
            continue
        except OSError as error:
            raise Failure(
                "NO_UNDO_FILE",
                f"{name}, which is to undo the moves, cannot be written: {error.strerror}; nothing was changed",
                "--undo-file names another file",
            ) from None
        say(f"{name} has the present replicas: `cordwood cluster reassign --file {name}` undoes the moves")
        return name
    # A command that is repeated after an interruption would note replicas in the middle of a move as the former ones.
    raise Failure(
        "UNDO_FILE_EXISTS",
        f"{path} exists already, and may be the only note of where replicas were before earlier moves; nothing was "
        "changed",
        "name a new file with --undo-file, or leave the option out; remove the old file only if its moves need no undo",
    )


def _names() -> Iterator[str]:
    """Names for the file of a command: the second command of one second needs another name than the first."""
    stem = time.strftime("cordwood-undo-%Y%m%d-%H%M%S", time.gmtime())
    yield f"{stem}.json"
    for number in count(2):
        yield f"{stem}-{number}.json"


def _write(path: str, plan: Mapping[str, Any]) -> None:
    """Writes the file. Raises OSError: FileExistsError if there is one already, which stays as it is."""
    made = open(path, "x", encoding="utf-8")  # noqa: SIM115
    try:
        with made as file:
            json.dump(plan, file, indent=1)
    except BaseException:
        # A part of a plan undoes nothing, and would stop the next command with the same --undo-file.
        os.remove(path)
        raise

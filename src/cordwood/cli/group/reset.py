"""`cordwood group reset`: moves a group's positions. A dry run without --execute."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cordwood.cli.starting_point import KAFKA_WORDS
from cordwood.cli.terminal.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    AsJson,
    BootstrapServers,
    GroupName,
    TimeoutSeconds,
    checked_name,
)
from cordwood.cli.terminal.output import print_json, print_table, remark
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.moments import parse_time_ms
from cordwood.model.quantities import count_in_words, duration_ms

if TYPE_CHECKING:
    from cordwood.cli.connection import Connection
    from cordwood.cli.group.view import GroupView

MAX_REMARKS = 5
"""The most partitions with a separate remark."""


class Target(NamedTuple):
    """`kind`: beginning, end, offset, time or shift; `number`: the offset, the time or the distance."""

    kind: str
    number: int = 0


class Move(NamedTuple):
    partition: int
    before: int | None
    after: int
    asked: int
    """The offset that was asked for; `after` is the nearest offset that the log has."""


def parse_target(to: str | None, shift: int | None, back: str | None) -> Target:
    if sum(option is not None for option in (to, shift, back)) != 1:
        raise Failure("USAGE", "exactly one of --to, --shift and --back is needed", "", ExitCode.USAGE)
    if shift is not None:
        return Target("shift", shift)
    if back is not None:
        try:
            if back.strip().isdecimal():
                raise ValueError("a duration has a unit")
            ago_ms = duration_ms(back)
        except ValueError:
            hint = "write 90s, 15m, 2h or 7d"
            raise Failure(
                "USAGE", f"--back {back[:80]!r} is not a duration with a unit", hint, ExitCode.USAGE
            ) from None
        return Target("time", max(int(time.time() * 1000) - ago_ms, 0))
    assert to is not None
    to = KAFKA_WORDS.get(to, to)
    if to in ("beginning", "end"):
        return Target(to)
    # Python raises ValueError for a number with too many digits.
    with suppress(ValueError):
        if to.isdecimal():
            return Target("offset", int(to))
        if to.startswith("@"):
            return Target("time", parse_time_ms(to[1:]))
    raise Failure(
        "USAGE",
        f"--to {to[:80]!r} is no place in a log",
        "beginning, end, an offset, @2026-01-31T12:00:00Z or @1700000000000",
        ExitCode.USAGE,
    )


def reset(
    name: GroupName,
    topic: Annotated[
        str,
        typer.Option("--topic", "-t", metavar="TOPIC", callback=checked_name, help="The topic.", show_default=False),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="beginning (earliest), end (latest), an offset, or a time: @2026-01-31T12:00:00Z, @1700000000000 "
            "(milliseconds).",
            show_default=False,
        ),
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option(
            "--shift", metavar="N", help="Move by this many offsets; a negative number moves back.", show_default=False
        ),
    ] = None,
    back: Annotated[
        str | None,
        typer.Option(
            "--back",
            metavar="DURATION",
            help="Move to the first record written since this long ago: 90s, 2h, 7d.",
            show_default=False,
        ),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="N",
            help="Only this partition; may be given several times.",
            show_default=False,
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Move the positions; without it they are only shown.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the moves only, which is the default.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Move the positions of a group that has no members. Without --execute, only show the moves."""
    from cordwood.cli.connection import Connection

    if execute and dry_run:
        raise Failure("USAGE", "--execute moves the positions, --dry-run does not", "give one of them", ExitCode.USAGE)
    target = parse_target(to, shift, back)
    connection = Connection(bootstrap_servers, timeout_s)
    moves = plan(connection, name, topic, partitions, target)
    group = _group_if_there(connection, name)
    known, members = group is not None, len(group.members) if group is not None else 0
    if execute:
        _execute(connection, name, topic, moves)
    if as_json:
        print_json(
            {
                "group": name,
                "topic": topic,
                "executed": execute,
                "known": known,
                "members": members,
                "positions": [move._asdict() for move in moves],
            }
        )
        return
    print_table(["partition", "before", "after"], [(move.partition, move.before, move.after) for move in moves])
    _remark_on_clamped(moves)
    if execute:
        return
    if not known:
        remark(f"There is no group {name} yet: --execute creates it.")
    if members:
        remark(f"{name} has {count_in_words(members, 'member')}: --execute is refused until its consumers stop.")
    remark("Dry run: nothing was changed. --execute moves the positions.")


def _group_if_there(connection: "Connection", name: str) -> "GroupView | None":
    from cordwood.cli.group.view import describe

    try:
        return describe(connection, name)
    except Failure as failure:
        if failure.exit_code is not ExitCode.NOT_FOUND:
            raise
        return None


def _remark_on_clamped(moves: list[Move]) -> None:
    clamped = [move for move in moves if move.asked != move.after]
    for move in clamped[:MAX_REMARKS]:
        edge = "starts" if move.asked < move.after else "ends"
        remark(f"Partition {move.partition} has no offset {move.asked}: its log {edge} at {move.after}.")
    if (more := len(clamped) - MAX_REMARKS) > 0:
        remark(f"The same holds for {count_in_words(more, 'more partition')}.")


def plan(connection: "Connection", name: str, topic: str, partitions: list[int] | None, target: Target) -> list[Move]:
    """Each partition's position before and after the move, never outside of the partition's log."""
    from confluent_kafka.admin import OffsetSpec

    from cordwood.cli.group.view import committed_offsets

    metadata = connection.call(lambda: connection.admin().list_topics(timeout=connection.timeout_s))
    if topic not in metadata.topics:
        raise connection.unknown_topic(topic)
    there = sorted(metadata.topics[topic].partitions)
    chosen = there if not partitions else sorted(set(partitions))
    if missing := set(chosen) - set(there):
        raise Failure("UNKNOWN_TOPIC_OR_PARTITION", f"{topic} has no partition {min(missing)}", "", ExitCode.NOT_FOUND)
    committed = committed_offsets(connection, name)
    starts = connection.offsets(topic, chosen, OffsetSpec.earliest())
    ends = connection.offsets(topic, chosen, OffsetSpec.latest())
    stamped = {}
    if target.kind == "time":
        stamped = connection.offsets(topic, chosen, OffsetSpec.for_timestamp(target.number))
    moves = []
    for partition in chosen:
        before = committed.get((topic, partition))
        match target.kind:
            case "beginning":
                after = starts[partition]
            case "end":
                after = ends[partition]
            case "offset":
                after = target.number
            case "shift":
                after = (starts[partition] if before is None else before) + target.number
            case _:
                after = stamped[partition] if stamped[partition] >= 0 else ends[partition]
        moves.append(Move(partition, before, min(max(after, starts[partition]), ends[partition]), after))
    return moves


def _execute(connection: "Connection", name: str, topic: str, moves: list[Move]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    from cordwood.cli.connection import failure_of

    asked = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, move.partition, move.after) for move in moves])
    answer = connection.ask_all(lambda admin: admin.alter_consumer_group_offsets([asked]))[name]
    refused = next((each.error for each in answer.topic_partitions if each.error is not None), None)
    if refused is not None:
        raise failure_of(refused, connection.bootstrap_servers)

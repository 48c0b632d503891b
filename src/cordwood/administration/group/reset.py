"""Moving the positions of a group: the target, the plan, and its execution."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from cordwood.administration.topic.starting_point import KAFKA_WORDS
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import duration_ms
from cordwood.model.timestamps import parse_time_ms

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection


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
    """The target that exactly one of the three texts names. Raises Failure."""
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


def plan(connection: "Connection", name: str, topic: str, partitions: list[int] | None, target: Target) -> list[Move]:
    """Each partition's position before and after the move, never outside of the partition's log."""
    from confluent_kafka.admin import OffsetSpec

    from cordwood.administration.group.view import committed_offsets

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


def move_positions(connection: "Connection", name: str, topic: str, moves: list[Move]) -> None:
    """Commits the planned positions. Raises Failure, also if the group has members."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    asked = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, move.partition, move.after) for move in moves])
    answer = connection.ask_all(lambda admin: admin.alter_consumer_group_offsets([asked]))[name]
    refused = next((each.error for each in answer.topic_partitions if each.error is not None), None)
    if refused is not None:
        raise connection.failure_of(refused)

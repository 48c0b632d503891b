"""The start of reading: the beginning, the end, an offset, a time, the last N, or a group's committed position."""

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from cordwood.model.failure import ExitCode, Failure
from cordwood.model.timestamps import parse_time_ms

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from cordwood.administration.connection import Connection


KAFKA_WORDS = {"earliest": "beginning", "latest": "end"}
"""Kafka's words for two places."""
_PLACES = "beginning, end, an offset, -N, @2026-01-31T12:00:00Z, @1700000000000 or committed"


class Span(NamedTuple):
    """The range of offsets that is read of a partition; `end` is the offset after its last record at the start."""

    offset: int
    end: int


class Place(NamedTuple):
    """An offset in a partition, beside the log's start and end; the offset may lie outside of the log."""

    start: int
    offset: int
    end: int


class StartingPoint(NamedTuple):
    """`kind`: beginning, end, offset, last, time or committed; `number`: the offset, the count or the time."""

    kind: str
    number: int = 0

    @classmethod
    def parse(cls, text: str, option: str = "--from", places: str = _PLACES) -> "StartingPoint":
        """Reads an option's text. `places` lists the allowed texts, for the error about any other one."""
        text = KAFKA_WORDS.get(text, text)
        if text in ("beginning", "end", "committed"):
            return cls(text)
        # Python raises ValueError for a number with too many digits.
        with suppress(ValueError):
            if text.isdecimal():
                return cls("offset", int(text))
            if text.startswith("-") and text[1:].isdecimal():
                return cls("last", int(text[1:]))
            if text.startswith("@"):
                return cls("time", parse_time_ms(text[1:]))
        raise Failure(
            "USAGE",
            f"{option} {text[:80]!r} is no place in a log",
            places,
            ExitCode.USAGE,
        )

    def resolve(
        self, connection: "Connection", consumer: "Consumer", topic: str, partitions: list[int]
    ) -> dict[int, Span]:
        """The range to read of each partition. Raises Failure if its first records are gone: no silent skips."""
        places = self.places(connection, consumer, topic, partitions)
        for index, (start, offset, end) in places.items():
            # An offset is an address in one partition: a partition that ends before it gives nothing.
            if offset < start or (offset > end and len(partitions) == 1):
                raise out_of_range(index, offset, start, end)
        return {index: Span(min(place.offset, place.end), place.end) for index, place in places.items()}

    def places(
        self, connection: "Connection", consumer: "Consumer", topic: str, partitions: list[int]
    ) -> dict[int, Place]:
        """The place in each partition, even if it lies outside of the partition's log."""
        from confluent_kafka.admin import OffsetSpec

        starts = connection.offsets(topic, partitions, OffsetSpec.earliest())
        ends = connection.offsets(topic, partitions, OffsetSpec.latest())
        match self.kind:
            case "beginning":
                chosen = starts
            case "end":
                chosen = ends
            case "last":
                from cordwood.administration.topic.last_records import last_records

                chosen = last_records(connection, consumer, topic, starts, ends, self.number)
            case "time":
                found = connection.offsets(topic, partitions, OffsetSpec.for_timestamp(self.number))
                chosen = {index: found[index] if found[index] >= 0 else ends[index] for index in partitions}
            case "committed":
                committed = _committed(connection, consumer, topic, partitions)
                chosen = {index: committed.get(index, starts[index]) for index in partitions}
            case _:
                chosen = dict.fromkeys(partitions, self.number)
        return {index: Place(starts[index], chosen[index], ends[index]) for index in partitions}


def _committed(connection: "Connection", consumer: "Consumer", topic: str, partitions: list[int]) -> dict[int, int]:
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(topic, index) for index in partitions]
    answers = connection.call(lambda: consumer.committed(asked, timeout=connection.timeout_s))
    return {answer.partition: answer.offset for answer in answers if answer.offset >= 0}


def out_of_range(index: int, offset: int, start: int, end: int, hint: str = "") -> Failure:
    """The failure for an offset that a partition does not have. The default `hint` is for reading."""
    before = f"records before offset {start} were deleted; --from beginning reads what is left"
    behind = "--from end --follow waits for new records"
    return Failure(
        "OFFSET_OUT_OF_RANGE",
        f"partition {index} has offsets {start} to {end - 1}, not {offset}"
        if end > start
        else f"partition {index} is empty and its next offset is {end}: it has no offset {offset}",
        hint or (before if offset < start else behind),
    )

"""Where reading begins: the beginning, the end, an offset, a time, the last N, or a group's committed position."""

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from cordwood.cli.failure import ExitCode, Failure
from cordwood.model.moments import parse_time_ms

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from cordwood.cli.connection import Connection


KAFKA_WORDS = {"earliest": "beginning", "latest": "end"}
"""As people who come from Kafka say it."""
_PLACES = "beginning, end, an offset, -N, @2026-01-31T12:00:00Z, @1700000000000 or committed"


class Span(NamedTuple):
    """From where to where a partition is read; `end` is the offset after its last record as of now."""

    offset: int
    end: int


class Place(NamedTuple):
    """A place in a partition, between where its log begins and ends; it may be outside of both."""

    start: int
    offset: int
    end: int


class StartingPoint(NamedTuple):
    """`kind` is beginning, end, offset, last, time or committed; `number` is the offset, the count or the time."""

    kind: str
    number: int = 0

    @classmethod
    def parse(cls, text: str, option: str = "--from", places: str = _PLACES) -> "StartingPoint":
        """`places` are those that the option takes, for the error of a text that is none."""
        text = KAFKA_WORDS.get(text, text)
        if text in ("beginning", "end", "committed"):
            return cls(text)
        # More digits than Python takes for a number are a ValueError too.
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
        """Where each partition is read from. A Failure if records before it are gone: nothing is skipped in silence."""
        places = self.places(connection, consumer, topic, partitions)
        for index, (start, offset, end) in places.items():
            # An offset is an address in one partition: of several, those that end before it have nothing to give.
            if offset < start or (offset > end and len(partitions) == 1):
                raise out_of_range(index, offset, start, end)
        return {index: Span(min(place.offset, place.end), place.end) for index, place in places.items()}

    def places(
        self, connection: "Connection", consumer: "Consumer", topic: str, partitions: list[int]
    ) -> dict[int, Place]:
        """The place in each partition, also where it is outside of what the partition has."""
        from confluent_kafka.admin import OffsetSpec

        starts = connection.offsets(topic, partitions, OffsetSpec.earliest())
        ends = connection.offsets(topic, partitions, OffsetSpec.latest())
        match self.kind:
            case "beginning":
                chosen = starts
            case "end":
                chosen = ends
            case "last":
                from cordwood.cli.last_records import last_records

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
    """`hint` is what to do instead; by default, for reading."""
    before = f"retention removed what was before {start}; --from beginning reads what is left"
    behind = "--from end waits for what comes, with --follow"
    return Failure(
        "OFFSET_OUT_OF_RANGE",
        f"partition {index} has offsets {start} to {end - 1}, not {offset}"
        if end > start
        else f"partition {index} is empty (its next offset is {end}), it has no offset {offset}",
        hint or (before if offset < start else behind),
    )

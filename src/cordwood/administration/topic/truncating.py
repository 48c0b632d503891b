"""The deletion of a topic's records before a place: the plan, and the request."""

from typing import NamedTuple

from confluent_kafka import TopicPartition

from cordwood.administration.connection import Connection, no_such_partition
from cordwood.administration.topic.reading import open_consumer
from cordwood.administration.topic.starting_point import StartingPoint, out_of_range
from cordwood.administration.topic.view import partition_indexes
from cordwood.model.failure import ExitCode, Failure


class Cut(NamedTuple):
    """A partition's log: its present start, its new start, and its end."""

    partition: int
    start: int
    new_start: int
    end: int


def plan_cuts(connection: Connection, topic: str, chosen: list[int] | None, where: StartingPoint) -> list[Cut]:
    """The cut of each chosen partition, or of all. Raises Failure."""
    indexes = partition_indexes(connection, topic)
    for index in chosen or ():
        if index not in indexes:
            raise no_such_partition(topic, index, indexes)
    partitions = sorted(set(chosen)) if chosen else indexes
    if where.kind == "offset" and len(partitions) > 1:
        raise Failure(
            "USAGE",
            f"an offset is a place in one partition, not in {len(partitions)}",
            "name one with --partition, or give end, -N or @TIME",
            ExitCode.USAGE,
        )
    consumer = open_consumer(connection)
    try:
        places = where.places(connection, consumer, topic, partitions)
    finally:
        consumer.close()
    for index, place in places.items():
        if place.offset > place.end:
            raise out_of_range(index, place.offset, place.start, place.end, hint="--before end deletes all records")
    return [
        Cut(index, place.start, max(place.offset, place.start), place.end) for index, place in sorted(places.items())
    ]


def delete_records(connection: Connection, topic: str, cuts: list[Cut]) -> None:
    asked = [TopicPartition(topic, cut.partition, cut.new_start) for cut in cuts if cut.new_start > cut.start]
    connection.ask_all(lambda admin: admin.delete_records(asked))

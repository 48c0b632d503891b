"""`cordwood topic truncate`: deletes a topic's records before a place."""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cordwood.administration.topic.starting_point import StartingPoint, out_of_range
from cordwood.cli.terminal.asking import DryRun, Yes, confirm
from cordwood.cli.terminal.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    AsJson,
    BootstrapServers,
    TimeoutSeconds,
    TopicName,
)
from cordwood.cli.terminal.output import print_json, print_table, remark
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import count_in_words

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection


_PLACES = "end, -N, @TIME or an offset"


class Cut(NamedTuple):
    """A partition's log: its present start, its new start, and its end."""

    partition: int
    start: int
    new_start: int
    end: int


def truncate(
    topic: TopicName,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="WHERE",
            help="Delete the records before this place: `end` (all records), `-N` (all but the last N records of each "
            "partition), `@TIME` (ISO 8601 or milliseconds), or an offset of a partition.",
            show_default=False,
        ),
    ],
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", min=0, help="Only this partition; may be given several times.", show_default=False
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Delete a topic's oldest records, up to a place. There is no way back.

    The topic and all later records stay, with their offsets. Deleted records are gone for every reader at once; disk
    space is freed by whole segments. The command counts offsets: transaction markers and records that compaction
    removed have offsets, too.
    """
    where = StartingPoint.parse(before, "--before", _PLACES)
    if where.kind == "committed":
        raise Failure("USAGE", "--before does not take committed", _PLACES, ExitCode.USAGE)
    from cordwood.administration.connection import Connection

    connection = Connection(bootstrap_servers, timeout_s)
    cuts = _plan(connection, topic, partition, where)
    gone = sum(cut.new_start - cut.start for cut in cuts)
    if not as_json:
        print_table(
            ["partition", "begins at", "will begin at", "ends at"],
            [(cut.partition, cut.start, cut.new_start, cut.end) for cut in cuts],
        )
    if gone and not dry_run:
        question = f"{topic}: {count_in_words(gone, 'offset')} will be gone for every reader. Delete?"
        confirm("deleting", question, yes=yes, otherwise="Nothing was deleted.")
        _delete(connection, topic, cuts)
    if as_json:
        print_json({"topic": topic, "deleted": not dry_run, "partitions": [cut._asdict() for cut in cuts]})
    elif dry_run:
        remark(f"{topic}: {count_in_words(gone, 'offset')} would be gone. Nothing was deleted.")
    else:
        remark(f"{topic}: {count_in_words(gone, 'offset')} deleted.")


def _plan(connection: "Connection", topic: str, chosen: list[int] | None, where: StartingPoint) -> list[Cut]:
    from cordwood.administration.connection import no_such_partition
    from cordwood.administration.topic.reading import open_consumer
    from cordwood.administration.topic.view import partition_indexes

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


def _delete(connection: "Connection", topic: str, cuts: list[Cut]) -> None:
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(topic, cut.partition, cut.new_start) for cut in cuts if cut.new_start > cut.start]
    connection.ask_all(lambda admin: admin.delete_records(asked))

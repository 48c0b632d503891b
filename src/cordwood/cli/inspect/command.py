"""`cordwood inspect`: chooses the view and the partitions."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

import typer

from cordwood.cli.terminal.options import AsJson
from cordwood.model.failure import ExitCode, Failure


def inspect(
    directory: Annotated[
        str,
        typer.Argument(metavar="DIR", help="A broker's data directory, or one partition's directory in it."),
    ] = "./cordwood-data",
    partition: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC-PARTITION", help="One partition, such as `orders-0`. Default: all."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read and check every batch, record, index, snapshot and checkpoint.")
    ] = False,
    batches: Annotated[bool, typer.Option("--batches", help="List every batch.")] = False,
    records: Annotated[bool, typer.Option("--records", help="List every record.")] = False,
    producers: Annotated[bool, typer.Option("--producers", help="List the idempotent producers in the log.")] = False,
    from_offset: Annotated[
        int, typer.Option("--from", metavar="OFFSET", min=0, help="List batches or records from this offset on.")
    ] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="List at most this many batches or records.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the files of a stopped broker: partitions, segments, batches, records, producers, checkpoints.

    The command changes nothing, and refuses a directory that a broker is using. --verify exits with 5 if it finds a
    problem. The log directory of a stopped Apache Kafka works, too. Partitions that a start set aside because the
    metadata did not know them are listed under their present names.
    """
    from cordwood.cli.inspect import show
    from cordwood.log.inspection.directory import Partition, named_partition, read_data_directory
    from cordwood.log.inspection.lock import stopped

    views = [name for name, chosen in (("batches", batches), ("records", records), ("producers", producers)) if chosen]
    if len(views) + verify > 1:
        raise Failure(
            "USAGE", "--verify, --batches, --records and --producers exclude each other", "give one", ExitCode.USAGE
        )
    with _readable(directory), ExitStack() as stack:
        for held in (directory, os.path.dirname(os.path.abspath(directory))):
            stack.enter_context(stopped(held))
        data = read_data_directory(directory)
        chosen: list[Partition] = data.partitions
        if partition is not None:
            chosen = named_partition(data, partition)
        if verify:
            show.verification(data, chosen, as_json=as_json)
        elif views == ["batches"]:
            show.batches(chosen, from_offset, limit, as_json=as_json)
        elif views == ["records"]:
            show.records(chosen, from_offset, limit, as_json=as_json)
        elif views == ["producers"]:
            show.producers(chosen, as_json=as_json)
        elif len(chosen) == 1:
            show.partition(chosen[0], as_json=as_json)
        else:
            show.overview(data, as_json=as_json)


@contextmanager
def _readable(directory: str) -> Iterator[None]:
    """Turns an OSError (missing rights, a directory in the place of a log) into a Failure."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure("UNREADABLE", f"{error.filename or directory} cannot be read: {error.strerror}") from error

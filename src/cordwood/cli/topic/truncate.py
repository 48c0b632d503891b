"""`cordwood topic truncate`: deletes a topic's records before a place."""

from typing import Annotated

import typer

from cordwood.administration.topic.starting_point import StartingPoint
from cordwood.cli.terminal.asking import DryRun, Yes, confirm
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
    TopicName,
)
from cordwood.cli.terminal.output import print_json, print_table, remark
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import count_in_words

_PLACES = "end, -N, @TIME or an offset"


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
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
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
    from cordwood.administration.topic.truncating import delete_records, plan_cuts

    connection = connect(bootstrap_servers, timeout_s, client_config)
    cuts = plan_cuts(connection, topic, partition, where)
    gone = sum(cut.new_start - cut.start for cut in cuts)
    if not as_json:
        print_table(
            ["partition", "begins at", "will begin at", "ends at"],
            [(cut.partition, cut.start, cut.new_start, cut.end) for cut in cuts],
        )
    if gone and not dry_run:
        question = f"{topic}: {count_in_words(gone, 'offset')} will be gone for every reader. Delete?"
        confirm("deleting", question, yes=yes, otherwise="Nothing was deleted.")
        delete_records(connection, topic, cuts)
    if as_json:
        print_json({"topic": topic, "deleted": not dry_run, "partitions": [cut._asdict() for cut in cuts]})
    elif dry_run:
        remark(f"{topic}: {count_in_words(gone, 'offset')} would be gone. Nothing was deleted.")
    else:
        remark(f"{topic}: {count_in_words(gone, 'offset')} deleted.")

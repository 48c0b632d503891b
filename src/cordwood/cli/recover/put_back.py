"""`cordwood recover put-back`.

All checks come before the first change. Directories are renamed first, then the metadata is written: after an
interruption between the two, the next start sets the directories aside again.
"""

from typing import Annotated, Any

import typer

from cordwood.cli.recover.list import DataDirectoryArgument
from cordwood.cli.terminal.asking import DRY_RUN, DryRun
from cordwood.cli.terminal.options import AsJson


def put_back(
    directory: DataDirectoryArgument = "./cordwood-data",
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC|DIRECTORY", help="Topics or directories that `recover list` shows."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Put back all topics that are set aside.")] = False,
    new_name: Annotated[
        str | None, typer.Option("--as", metavar="TOPIC", help="Put one topic back under another name.")
    ] = None,
    partition_count: Annotated[
        int | None,
        typer.Option(
            "--partitions", metavar="N", min=1, help="How many partitions one topic had, if its directories do not say."
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Put back partitions that a start set aside. The broker serves them from its next start on.

    A topic that the metadata does not know comes back with the id, the number of partitions and the settings that its
    directories name. Only its retention is off (`retention.ms=-1`) until you set it again. Directories of an earlier
    version do not name the number of partitions: it becomes the highest partition on disk plus one, or --partitions. If
    another topic has taken the name, nothing is changed: choose a new name with --as.

    The directory is that of a broker without a cluster. Copy the set-aside directories of a cluster's node into such a
    directory first.

    If one of the broker's own topics came into use again since the loss, the two are merged: positions and
    transactional ids that the new one does not have are added to it. The old directories are kept, with names that end
    in `-merged`.
    """
    from cordwood.broker.recovery.restoring import put_topics_back
    from cordwood.cli.terminal.output import print_json, remark, say

    restored = put_topics_back(
        directory,
        names or [],
        everything=everything,
        new_name=new_name,
        partition_count=partition_count,
        dry_run=dry_run,
    )
    if as_json:
        print_json(restored)
        return
    if not restored:
        remark("Nothing is set aside.")
    for topic in restored:
        partitions = ", ".join(str(number) for number in topic["partitions"])
        if dry_run:
            say(f"{topic['topic']}: partitions {partitions} would be put back")
            continue
        if topic["merged"] is not None:
            _say_merged(topic["topic"], topic["merged"])
            continue
        say(f"{topic['topic']}: partitions {partitions} put back; the topic has {topic['partition_count']} in all")
        if not topic["partition_count_known"]:
            say("  no directory names the number of partitions: `cordwood topic alter --partitions` adds missing ones")
        if topic["settings"]:
            settings = ", ".join(f"{name}={value}" for name, value in sorted(topic["settings"].items()))
            say(f"  the topic's settings are {settings} now. `cordwood config alter` changes them")
        if topic["retention_before"]:
            retention = ", ".join(f"{name}={value}" for name, value in sorted(topic["retention_before"].items()))
            say(f"  before the loss the topic had {retention}")
    if dry_run:
        remark(DRY_RUN)


def _say_merged(topic: str, merged: dict[str, Any]) -> None:
    from cordwood.cli.terminal.output import say

    added, newer = merged["taken"], merged["newer"]
    say(f"{topic}: merged with the topic in use: {added} records added, {newer} have newer ones there")
    if merged["superseded_transactions"]:
        names = ", ".join(merged["superseded_transactions"])
        say(f"  transactions that were open in the old one, of ids that the new one has: {names}")
        say("  `cordwood transaction list` and `abort` end what they left open")
    if merged["undecided_positions"]:
        say(f"  {merged['undecided_positions']} positions were part of open transactions, and were not added")
    if merged["not_understood"]:
        say(f"  {merged['not_understood']} records are of types that this version does not know, and were not added")

"""`cordwood recover put-back`.

All checks come before the first change. Directories are renamed first, then the metadata is written: after an
interruption between the two, the next start sets the directories aside again.
"""

import asyncio
import os
from typing import Annotated, Any

import typer

from cordwood.cli.options import AsJson
from cordwood.cli.recover.list import DataDirectoryArgument


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
    as_json: AsJson = False,
) -> None:
    """Put partitions back that a start set aside. The broker serves them from its next start on.

    A topic that the metadata does not know comes back with the id, the number of partitions and the settings that its
    directories name. Only its retention is off (`retention.ms=-1`) until you set it again. Directories of an earlier
    version do not name the number of partitions: it becomes the highest partition on disk plus one, or --partitions. If
    another topic has taken the name, nothing is changed: choose a new name with --as.
    """
    from cordwood.cli.output import print_json, remark, say
    from cordwood.cli.recover.offline import taken
    from cordwood.cli.recover.restoring import restore

    with taken(directory) as filesystem:
        restored: list[dict[str, Any]] = asyncio.run(
            restore(
                filesystem,
                os.path.abspath(directory),
                names or [],
                everything=everything,
                new_name=new_name,
                partition_count=partition_count,
            )
        )
    if as_json:
        print_json(restored)
        return
    if not restored:
        remark("Nothing is set aside.")
    for topic in restored:
        partitions = ", ".join(str(number) for number in topic["partitions"])
        say(f"{topic['topic']}: partitions {partitions} put back; the topic has {topic['partition_count']} in all")
        if not topic["partition_count_known"]:
            say("  no directory names the number of partitions: `cordwood topic alter --partitions` adds missing ones")
        if topic["settings"]:
            settings = ", ".join(f"{name}={value}" for name, value in sorted(topic["settings"].items()))
            say(f"  the topic's settings are {settings} now. `cordwood config alter` changes them")
        if topic["retention_before"]:
            retention = ", ".join(f"{name}={value}" for name, value in sorted(topic["retention_before"].items()))
            say(f"  before the loss the topic had {retention}")

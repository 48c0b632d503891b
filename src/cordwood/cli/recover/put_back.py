"""`cordwood recover put-back`.

Everything is checked before anything is changed. Directories get their names back first, the metadata follows: if that
is interrupted, the next start sets them aside again.
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
        list[str] | None, typer.Argument(metavar="[TOPIC|DIRECTORY]...", help="What to put back; see `recover list`.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Put back all that is set aside.")] = False,
    new_name: Annotated[
        str | None, typer.Option("--as", metavar="TOPIC", help="Put one topic back under another name.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put partitions back that a start set aside: the broker serves them when it next starts.

    A topic that the metadata does not know comes back with its id and its partitions. Its settings are lost with the
    metadata: it keeps everything (`retention.ms=-1`) until you set them. The highest partition on disk is its last:
    add empty ones that it had behind it with `cordwood topic alter --partitions`. If another topic has its name by
    now, nothing is changed: give it a new one with --as.
    """
    from cordwood.cli.output import print_json, remark, say
    from cordwood.cli.recover.offline import taken
    from cordwood.cli.recover.restoring import restore

    with taken(directory) as filesystem:
        restored: list[dict[str, Any]] = asyncio.run(
            restore(filesystem, os.path.abspath(directory), names or [], everything=everything, new_name=new_name)
        )
    if as_json:
        print_json(restored)
        return
    if not restored:
        remark("Nothing is set aside.")
    for topic in restored:
        partitions = ", ".join(str(number) for number in topic["partitions"])
        say(f"{topic['topic']}: put back, partitions {partitions} of {topic['partition_count']}")
        if topic["settings"]:
            settings = ", ".join(f"{name}={value}" for name, value in topic["settings"].items())
            say(f"  its settings were lost; set now: {settings}. `cordwood config alter` sets others")

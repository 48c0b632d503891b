"""`cordwood recover list`."""

import os
from typing import Annotated

import typer

from cordwood.cli.terminal.options import AsJson, Quiet

DataDirectoryArgument = Annotated[str, typer.Argument(metavar="DIR", help="The data directory of a stopped broker.")]


def list_set_aside(
    directory: DataDirectoryArgument = "./cordwood-data", quiet: Quiet = False, as_json: AsJson = False
) -> None:
    """List partitions that a start set aside because the metadata did not know them.

    Their files are unchanged, and the broker does not serve them. `cordwood recover put-back` puts them back.
    """
    from cordwood.broker.recovery.lost_topics import end_offset, topics_set_aside
    from cordwood.cli.terminal.output import print_json, print_names, print_table, remark
    from cordwood.log.inspection.directory import read_data_directory
    from cordwood.log.inspection.lock import stopped
    from cordwood.model.quantities import size_in_words

    with stopped(directory):
        found = topics_set_aside(read_data_directory(directory))
        rows = [
            {
                "topic": topic.name,
                "partition": read.partition.partition,
                "topic_id": topic.topic_id_text,
                "directory": os.path.basename(read.directory),
                "start_offset": read.start_offset,
                "end_offset": end_offset(read),
                "size_bytes": read.size_bytes,
                "reason": read.set_aside,
            }
            for topic in found
            for read in topic.partitions
        ]
    if as_json:
        print_json(rows)
    elif quiet:
        print_names(str(row["directory"]) for row in rows)
    elif not rows:
        remark("Nothing is set aside.")
    else:
        columns = ["topic", "partition", "topic_id", "directory", "start_offset", "end_offset"]
        print_table(
            ["topic", "partition", "topic id", "directory", "start", "end", "size", "why"],
            [
                (*(row[column] for column in columns), size_in_words(read.size_bytes), row["reason"])
                for row, read in zip(rows, (read for topic in found for read in topic.partitions), strict=True)
            ],
        )

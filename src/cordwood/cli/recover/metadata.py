"""`cordwood recover metadata`."""

import asyncio
import os

from cordwood.cli.options import AsJson
from cordwood.cli.recover.list import DataDirectoryArgument


def recover_metadata(directory: DataDirectoryArgument = "./cordwood-data", as_json: AsJson = False) -> None:
    """Repair a damaged metadata store, accept one that was put back from an older copy, or replace a lost one.

    First its files are copied, as `metadata.sqlite.0-damaged` and so on. Then the newest state in them that can be
    proven whole is taken, and what its witness knows of later topics, settings and counters is added. Partitions that
    are still unknown then are set aside by the next start: see `recover put-back`. A store that is whole is left alone.
    """
    from cordwood.cli.output import print_json, say
    from cordwood.cli.recover.offline import taken
    from cordwood.cli.recover.repairing import repair

    with taken(directory) as filesystem:
        repaired = asyncio.run(repair(filesystem, os.path.abspath(directory)))
    if as_json:
        print_json(repaired)
    elif not repaired["damage"]:
        say("The metadata is whole: nothing was changed.")
    else:
        say(f"damage: {repaired['damage']}")
        taken_from = repaired["revision"]
        say(
            "  no state in it is whole"
            if taken_from is None
            else f"  its state at revision {taken_from} is whole, and used now"
        )
        say(f"  from its witness: {', '.join(repaired['topics']) or 'no topics'}")
        say(f"  kept: {', '.join(repaired['kept']) or 'nothing was there to be kept'}")
        say("Start the broker. `cordwood recover list` shows afterwards whether anything was set aside.")

"""`cordwood recover metadata`."""

from cordwood.cli.recover.list import DataDirectoryArgument
from cordwood.cli.terminal.asking import DRY_RUN, DryRun
from cordwood.cli.terminal.options import AsJson


def recover_metadata(
    directory: DataDirectoryArgument = "./cordwood-data", dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Repair a damaged metadata store, accept one that was restored from an older copy, or replace a lost one.

    The command first copies the store's files, as `metadata.sqlite.0-damaged` and so on. It then takes the newest state
    that can be proven whole, and adds later topics, settings and counters from the witness, a small file beside the
    store. The next start sets aside partitions that are still unknown: see `recover put-back`. A whole store is left
    alone.
    """
    from cordwood.broker.recovery.repairing import damage_in, repair_metadata
    from cordwood.cli.terminal.output import print_json, say

    if dry_run:
        _say_damage(damage_in(directory), as_json=as_json)
        return
    repaired = repair_metadata(directory)
    if as_json:
        print_json(repaired)
    elif not repaired["damage"]:
        say("The metadata is whole: nothing was changed.")
    else:
        say(f"damage: {repaired['damage']}")
        taken_from = repaired["revision"]
        say(
            "  no state in the store is whole"
            if taken_from is None
            else f"  the store's state at revision {taken_from} is whole, and is used now"
        )
        say(f"  topics added from the witness: {', '.join(repaired['topics']) or 'none'}")
        say(f"  copies of the damaged files: {', '.join(repaired['kept']) or 'none, since no file was there'}")
        say("Start the broker once. `cordwood recover list` then shows the partitions that it set aside, if any.")


def _say_damage(damage: str | None, *, as_json: bool) -> None:
    from cordwood.cli.terminal.output import print_json, remark, say

    if as_json:
        print_json({"damage": damage, "dry_run": True})
        return
    say("The metadata is whole: nothing would be changed." if damage is None else f"damage: {damage}")
    remark(DRY_RUN)

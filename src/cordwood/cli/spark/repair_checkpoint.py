"""`cordwood spark repair-checkpoint`."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
)
from cordwood.cli.terminal.output import print_json, print_table, remark, say
from cordwood.model.failure import ExitCode, Failure


def repair_checkpoint(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT",
            help="The checkpoint directory of a query, or of a pipeline's edition, on this machine.",
            show_default=False,
        ),
    ],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what is wrong, change nothing, and exit with 5 if something is wrong."),
    ] = False,
    family: Annotated[
        str | None,
        typer.Option(
            "--family",
            metavar="FAMILY",
            help="The family, as `cordwood transaction families` shows it, for a checkpoint that has lost it.",
            show_default=False,
        ),
    ] = None,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Restore files of a Spark checkpoint that a power cut has taken.

    Spark does not sync its checkpoint: a power cut can delete or empty the plan of a batch (offsets/N) after the batch
    was written. The broker keeps the plan of the last decided batch, and an edition of a pipeline keeps its own. This
    command writes the plan and the query's id back, and sets aside empty files of undecided batches. Replaced files are
    kept. Stop the query first.
    """
    from cordwood.cli.spark.deciding import decided_of
    from cordwood.spark.checkpoints.repairing import NotRepairable, apply, examine

    if not checkpoint.is_dir():
        raise Failure("CHECKPOINT_NOT_FOUND", f"{checkpoint} is no directory", "", ExitCode.NOT_FOUND)
    decided = decided_of(checkpoint, family, connect(bootstrap_servers, timeout_s, client_config))
    try:
        repair = examine(checkpoint, decided)
    except NotRepairable as reason:
        raise Failure("NOT_REPAIRABLE", str(reason)) from None
    kept = None if dry_run else apply(repair, now_ms=int(time.time() * 1000))
    last = None if decided.batch_id < 0 else decided.batch_id
    changes: list[dict[str, Any]] = [
        {"file": change.name, "problem": change.problem, "remedy": change.remedy} for change in repair.changes
    ]
    if as_json:
        told = {"checkpoint": str(checkpoint), "query_id": decided.query_id, "last_batch_id": last, "dry_run": dry_run}
        print_json({**told, "changes": changes, "kept": None if kept is None else str(kept)})
    else:
        say(f"query {decided.query_id}: last decided batch: {'none' if last is None else last}")
        if changes:
            heading = "to be" if dry_run else "has been"
            print_table(["file", "problem", heading], [tuple(each.values()) for each in changes])
        else:
            say("the checkpoint is whole: nothing to repair")
        if kept is not None:
            remark(f"The replaced files are in {kept}.")
    if dry_run and changes:
        raise typer.Exit(ExitCode.PROBLEM_FOUND)

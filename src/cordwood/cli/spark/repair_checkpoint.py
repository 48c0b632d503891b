"""`cordwood spark repair-checkpoint`."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from cordwood.cli.failure import ExitCode, Failure
from cordwood.cli.options import DEFAULT_BOOTSTRAP_SERVERS, DEFAULT_TIMEOUT_S, AsJson, BootstrapServers, TimeoutSeconds
from cordwood.cli.output import print_json, print_table, remark, say


def repair_checkpoint(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT",
            help="The query's checkpoint, a directory of this machine; of a pipeline: that of its edition.",
            show_default=False,
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is wrong and change nothing; exit code 5 if anything is.")
    ] = False,
    family: Annotated[
        str | None,
        typer.Option(
            "--family",
            metavar="FAMILY",
            help="The name of the query in `cordwood transaction families`, for a checkpoint that does not tell.",
            show_default=False,
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Bring a checkpoint that lost files back to what its query has written.

    Spark does not sync its checkpoint: a power cut can take the plan of a batch (offsets/N), or leave it empty, after
    the batch was written. The broker keeps the plan of the batch that was decided last, and an edition of a pipeline
    keeps its own: this writes it back. It also puts back the query's id, and sets aside empty files of batches that
    were not decided. Whatever is replaced is kept. Stop the query first.
    """
    from cordwood.cli.spark.deciding import decided_of
    from cordwood.spark.checkpoints.repairing import NotRepairable, apply, examine

    if not checkpoint.is_dir():
        raise Failure("CHECKPOINT_NOT_FOUND", f"{checkpoint} is no directory", "", ExitCode.NOT_FOUND)
    decided = decided_of(checkpoint, family, bootstrap_servers, timeout_s)
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
        say(f"query {decided.query_id}: decided {'nothing yet' if last is None else f'batch {last} last'}")
        if changes:
            heading = "to be" if dry_run else "has been"
            print_table(["file", "problem", heading], [tuple(each.values()) for each in changes])
        else:
            say("the checkpoint agrees with that: nothing to repair")
        if kept is not None:
            remark(f"What was replaced is in {kept}.")
    if dry_run and changes:
        raise typer.Exit(ExitCode.PROBLEM_FOUND)

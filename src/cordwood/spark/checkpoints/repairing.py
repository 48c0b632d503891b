"""Brings a checkpoint back to the last decided batch: finds its faults, and the changes that mend them.

The plan of the last decided batch has to be the decided one, or rows are lost; later plans are of undecided batches,
and can be made again. Nothing is thrown away: replaced files are kept in a directory `cordwood-repair-<time>` of the
checkpoint.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from cordwood.spark.checkpoints.plans import Plan, UnreadablePlan, batches_in, plan_path, read_plan
from cordwood.spark.checkpoints.syncing import replace_in_checkpoint


class NotRepairable(Exception):
    """The checkpoint cannot be brought back to the last decided batch; the message says why and what to do."""


@dataclass(frozen=True)
class Decided:
    """Facts about a checkpoint's query that are kept outside of the checkpoint."""

    query_id: str
    batch_id: int
    """The last decided batch; -1 if there is none."""
    digest: bytes = b""
    """The digest of the plan; empty if it was not kept."""
    plan: Plan | None = None
    """None if the plan was not kept, or was too long."""


@dataclass(frozen=True)
class Change:
    name: str
    """The file's name, below the checkpoint."""
    problem: str
    content: bytes | None
    """The file's new content; None if the file is set aside."""

    @property
    def remedy(self) -> str:
        return "set aside" if self.content is None else "written back"


@dataclass
class Repair:
    checkpoint: Path
    decided: Decided
    changes: list[Change] = field(default_factory=list)
    """Changes in the order in which they are made."""


def examine(checkpoint: Path, decided: Decided) -> Repair:
    """Finds the faults of a checkpoint. Changes nothing. Raises NotRepairable."""
    if not checkpoint.is_dir():
        raise NotRepairable(f"{checkpoint} is no directory")
    repair = Repair(checkpoint, decided)
    _examine_commits(repair)
    _examine_plan(repair)
    _examine_later_plans(repair)
    # The metadata come last: a repair that is interrupted before leaves the id with which Spark refuses to go on.
    _examine_metadata(repair)
    return repair


def _examine_commits(repair: Repair) -> None:
    decided = repair.decided.batch_id
    for batch_id in batches_in(repair.checkpoint / "commits"):
        path = repair.checkpoint / "commits" / str(batch_id)
        text = path.read_text(encoding="utf-8", errors="replace")
        if not text.startswith("v") or not _is_json(text.partition("\n")[2]):
            repair.changes.append(Change(f"commits/{batch_id}", "is empty" if not text else "is torn", None))
        elif batch_id > decided >= 0:
            raise NotRepairable(
                f"batch {batch_id} is done by the checkpoint, and the last one that was decided is {decided}: this is "
                "the memory of another query or an older one"
            )


def _examine_plan(repair: Repair) -> None:
    checkpoint, decided = repair.checkpoint, repair.decided
    if decided.batch_id < 0:
        return
    name = f"offsets/{decided.batch_id}"
    try:
        found = read_plan(checkpoint, decided.batch_id)
    except UnreadablePlan as unreadable:
        problem = str(unreadable).removeprefix(f"{plan_path(checkpoint, decided.batch_id)} ")
    else:
        if not decided.digest or found.digest == decided.digest:
            return
        problem = f"ends at {'; '.join(found.sources)}"
        if decided.plan is not None:
            problem += f", and batch {decided.batch_id} was decided to end at {'; '.join(decided.plan.sources)}"
    if decided.plan is None:
        raise NotRepairable(
            f"{name} {problem}, and the decision did not keep the plan itself (one that takes more than 16 KiB is kept "
            "as a digest only, one of an older Cordwood not at all): restore the file from a backup, or start with a "
            "new checkpoint from the positions of the query's progress group"
        )
    if decided.batch_id > 0:
        _check_plan_before(checkpoint, decided.batch_id)
    repair.changes.append(Change(name, problem, decided.plan.text.encode()))


def _check_plan_before(checkpoint: Path, batch_id: int) -> None:
    """Requires the plan of the previous batch: a batch begins where the previous one ended, and Spark reads that
    there."""
    try:
        read_plan(checkpoint, batch_id - 1)
    except UnreadablePlan as unreadable:
        raise NotRepairable(
            f"batch {batch_id} was decided, and of the one before it {unreadable}: the checkpoint is more than one "
            "batch old. Start with a new one, from the positions of the query's progress group"
        ) from None


def _examine_later_plans(repair: Repair) -> None:
    for batch_id in batches_in(repair.checkpoint / "offsets"):
        if batch_id > repair.decided.batch_id:
            try:
                read_plan(repair.checkpoint, batch_id)
            except UnreadablePlan as unreadable:
                problem = str(unreadable).removeprefix(f"{plan_path(repair.checkpoint, batch_id)} ")
                problem += ", and the batch was not decided: it is planned anew"
                repair.changes.append(Change(f"offsets/{batch_id}", problem, None))


def _examine_metadata(repair: Repair) -> None:
    wanted = repair.decided.query_id
    path = repair.checkpoint / "metadata"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        problem = "is missing"
    else:
        try:
            found = json.loads(text)["id"]
        except (ValueError, KeyError, TypeError):
            problem = "is torn" if text else "is empty"
        else:
            if found == wanted:
                return
            problem = f"names query {found}, and the checkpoint is that of {wanted}"
    repair.changes.append(Change("metadata", problem, json.dumps({"id": wanted}, separators=(",", ":")).encode()))


def apply(repair: Repair, *, now_ms: int) -> Path | None:
    """Makes the changes, durably. Returns the directory of the replaced files; None if nothing was replaced."""
    kept = repair.checkpoint / f"cordwood-repair-{now_ms}"
    for change in repair.changes:
        path = repair.checkpoint / change.name
        if path.exists():
            (kept / change.name).parent.mkdir(parents=True, exist_ok=True)
            if change.content is None:
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
                path.rename(kept / change.name)
            else:
                os.link(path, kept / change.name)
        if change.content is not None:
            replace_in_checkpoint(path, change.content)
    return kept if kept.exists() else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True

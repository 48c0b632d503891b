"""The plan of a batch, kept beside its edition before the first of the batch's outputs is committed.

Spark does not sync its checkpoint. After a power cut Spark may plan a batch again, with more records, that outputs have
already, and the outputs would skip all of them. So before anything of a batch is committed the checkpoint is synced,
and its plan is kept in `plan.json`, durably. A batch that comes again with another plan is refused.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.pipelines.definition.errors import DamagedState, WrongState
from cordwood.pipelines.definition.state_files import StateFiles
from cordwood.spark.checkpoints.plans import Plan, UnreadablePlan, read_plan
from cordwood.spark.checkpoints.syncing import sync_checkpoint

NAME: Final = "plan.json"
_FORMAT: Final = 1


@dataclass(frozen=True)
class KeptPlan:
    """The plan of the last batch that may be committed in part."""

    query_id: str
    batch_id: int
    plan: Plan


def read_kept(edition: Path, files: StateFiles | None = None) -> KeptPlan | None:
    """The kept plan in the directory `edition`. None before its first batch, and for an edition of an older
    Cordwood."""
    path = edition / NAME
    value = (files or StateFiles()).read(path)
    if value is None:
        return None
    try:
        if value["format"] != _FORMAT:
            raise DamagedState(f"{path} is of format {value['format']!r}, this program knows {_FORMAT}")
        return KeptPlan(str(value["query_id"]), int(value["batch"]), Plan.parse(value["plan"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedState(f"{path} holds no plan: {error}") from error


class PlannedBatches:
    """The plans of one edition's batches, while a query runs it."""

    def __init__(self, pipeline: str, edition: Path, checkpoint: Path, files: StateFiles) -> None:
        self._pipeline = pipeline
        self._edition = edition
        self._checkpoint = checkpoint
        self._files = files
        self._durable: int | None = None

    def check(self, batch_id: int) -> None:
        """Called before a batch begins. Raises WrongState if the plan differs from the kept plan of this batch."""
        kept = read_kept(self._edition, self._files)
        if kept is None or kept.batch_id != batch_id:
            return  # each output refuses an older batch by itself, from the number that it keeps
        now = self._plan(batch_id)
        if now.digest != kept.plan.digest:
            then, ends = "; ".join(kept.plan.sources), "; ".join(now.sources)
            raise WrongState(
                f"{self._pipeline}: batch {batch_id} is planned to end at {ends}, and outputs may have it as planned "
                f"before, to end at {then}: a power cut or a restored copy took that plan from the checkpoint, and "
                "records between the two would be lost",
                f"`cordwood spark repair-checkpoint {self._checkpoint}` writes it back",
            )

    def make_durable(self, query_id: str, batch_id: int) -> None:
        """Called before anything of a batch is committed: from then on it can be repeated, also after a power cut."""
        if self._durable == batch_id:
            return
        plan = self._plan(batch_id)
        sync_checkpoint(self._checkpoint)
        value = {"format": _FORMAT, "query_id": query_id, "batch": batch_id, "plan": plan.text}
        self._files.replace(self._edition / NAME, value)
        self._durable = batch_id

    def _plan(self, batch_id: int) -> Plan:
        try:
            return read_plan(self._checkpoint, batch_id)
        except UnreadablePlan as error:
            raise DamagedState(str(error)) from error

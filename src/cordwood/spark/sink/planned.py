"""The plan of a micro-batch, before and after its decision: durable before, and compared when a batch is repeated.

Spark does not sync its checkpoint. After a power cut Spark may plan a decided batch again, with more rows, which the
sink would skip because the batch is decided. So the driver syncs a checkpoint on this machine before it decides, and
the decision keeps the plan. A checkpoint elsewhere can be neither synced nor read here: for its batches the decision
keeps the number of rows.
"""

import logging
from pathlib import Path

from cordwood.client.cluster import Cluster
from cordwood.client.families import FamilyMemory, FamilyPlan
from cordwood.model.families import MAX_PLAN_BYTES
from cordwood.spark.checkpoints.owner import Owner, local_directory, query_id_of, read_owner, write_owner
from cordwood.spark.checkpoints.plans import Plan, UnreadablePlan, read_plan, without_query_name
from cordwood.spark.checkpoints.syncing import sync_checkpoint
from cordwood.spark.sink.options import OtherRowCount, SinkOptions, UnknownQuery
from cordwood.spark.sink.protocol import Decision, SinkFailure, Written, check_known
from cordwood.wire.apis import ApiKey

_log = logging.getLogger("cordwood.spark.sink")


class ChangedBatch(SinkFailure):
    """A batch is repeated with another plan, or other rows, than the one that was decided under its number."""


class LostMetadata(SinkFailure):
    """Spark has given a checkpoint another query id than it had."""


def make_durable(options: SinkOptions, decision: Decision, rows: int) -> FamilyPlan:
    """Makes a checkpoint on this machine survive a power cut, and returns the plan that the decision is to keep. Raises
    SinkFailure if the checkpoint could not be made durable."""
    checkpoint = local_directory(options.checkpoint)
    if checkpoint is None:
        return FamilyPlan(rows)
    _check_owner(checkpoint, decision.family, options.unknown_query)
    try:
        plan = read_plan(checkpoint, decision.batch_id)
        sync_checkpoint(checkpoint)
    except (UnreadablePlan, OSError) as error:
        raise SinkFailure(
            f"Batch {decision.batch_id} of '{decision.family}' is not committed: its checkpoint could not be made "
            f"durable, so a power cut could lose rows. {error}"
        ) from error
    return FamilyPlan(rows, plan.digest, plan.packed(MAX_PLAN_BYTES))


def _check_owner(checkpoint: Path, family: str, unknown: UnknownQuery) -> None:
    query_id = query_id_of(checkpoint)
    if query_id is None:
        return
    owner, now = read_owner(checkpoint), Owner(query_id, family)
    if owner == now:
        return
    if owner is not None and owner.query_id != query_id and unknown is UnknownQuery.FAIL:
        raise LostMetadata(
            f"The checkpoint {checkpoint} is that of query {owner.query_id}, and Spark runs it as {query_id}: its "
            "file 'metadata' was lost or replaced, and under a new id batches would be written again. Stop the query "
            f"and run `cordwood spark repair-checkpoint {checkpoint}`, which puts the id back; if the copy of another "
            "query's checkpoint is to go on as a query of its own, set the option 'unknownQuery' to 'begin'"
        )
    write_owner(checkpoint, now)


def check_family_is_known(cluster: Cluster, options: SinkOptions, decision: Decision) -> None:
    """Checks the family for a batch without rows, whose tasks have not asked the broker."""
    if decision.batch_id > 0 and options.unknown_query is UnknownQuery.FAIL:
        standing = cluster.family_renew(decision.family, decision.batch_id)
        check_known(decision.family, decision.batch_id, standing.last_batch_id, options.unknown_query)


def check_repeated(
    cluster: Cluster, options: SinkOptions, decision: Decision, plan: FamilyPlan, written: Written
) -> None:
    """Raises ChangedBatch if the batch that was decided under this number differs from this one."""
    if not cluster.supports(ApiKey.FAMILY_RECALL):
        return  # an older broker, which kept only a number
    decided = cluster.family_recall(decision.family)
    if decided.last_batch_id != decision.batch_id:
        return  # an older batch, which the option `olderBatches` allows
    batch = f"Batch {decision.batch_id} of '{decision.family}'"
    if plan.digest and decided.plan.digest:
        if plan.digest != decided.plan.digest:
            raise ChangedBatch(_another_plan(batch, options, plan, decided))
        return
    rows = written.rows + written.skipped_rows
    if decided.plan.rows < 0 or rows == decided.plan.rows:
        return
    if options.other_row_count is OtherRowCount.SKIP:
        _log.warning("%s was written with %d rows and has %d now", batch, decided.plan.rows, rows)
        return
    raise ChangedBatch(
        f"{batch} was written with {decided.plan.rows} rows and has {rows} now, so it is not the same batch: its "
        "checkpoint lost the plan of that batch (a power cut, a copy from before it), and what was planned anew would "
        "be passed over. If the query computes other rows from the same input each time, set the option "
        "'otherRowCount' to 'skip'. Else restore the checkpoint, or start with a new one"
    )


def _another_plan(batch: str, options: SinkOptions, plan: FamilyPlan, decided: FamilyMemory) -> str:
    checkpoint = local_directory(options.checkpoint)
    told = ""
    packed = [without_query_name(each.text)[0] for each in (decided.plan, plan)]
    if all(packed):
        then, now = (Plan.unpack(each).sources for each in packed)
        told = f" It ended at {'; '.join(then)} and ends at {'; '.join(now)} now."
    return (
        f"{batch} is written already, from other input than it is planned with now: a power cut or a restored copy "
        f"took the plan from the checkpoint, and rows that were added to it would be passed over.{told} Stop the query "
        f"and run `cordwood spark repair-checkpoint {checkpoint}`, which writes the decided plan back; the rows "
        "beyond it are then read by the next batch"
    )

"""The driver's half of a write: the reports of its tasks become one decision, or are taken back.

Commit and abort run in a short-lived process on the driver, which knows only the reports.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from cordwood.client.errors import ClientError
from cordwood.client.families import FamilyMember, FamilyPlan
from cordwood.model.families import MAX_PLAN_BYTES
from cordwood.spark.checkpoints.plans import with_query_name
from cordwood.spark.sink.options import Guarantee, SinkOptions
from cordwood.spark.sink.planned import check_family_is_known, check_repeated, make_durable
from cordwood.spark.sink.promises import transaction_timeout_ms
from cordwood.spark.sink.protocol import Decision, SinkFailure, TaskReport, Written, decision_of, sums_of
from cordwood.spark.sink.steps import Step, reached
from cordwood.spark.sink.transactions import WEAKER, abandon_slot
from cordwood.spark.workers.state import cluster_of
from cordwood.wire.apis import ApiKey

_log = logging.getLogger("cordwood.spark.sink")

Reports = Sequence[TaskReport | None]

ABORT_WITHIN_MS = 10_000
"""A write that has failed does not wait long for a broker that may be the reason."""

_told_what_is_weaker = False


def commit_batch(options: SinkOptions, reports: Reports, batch_id: int, *, forget: bool) -> None:
    """Decides a batch. Returns once all rows are visible to readers of committed records. Raises SinkFailure if they
    will not be."""
    decision = decision_of(reports, batch_id)
    if decision is None:
        return
    started_s = time.monotonic()
    guarantee = _guarantee_of(reports)
    if guarantee is Guarantee.TASK and options.guarantee is Guarantee.MICRO_BATCH:
        _tell_what_is_weaker(options)
    written = sums_of(reports)
    repeated = False
    reached(Step.DRIVER_DECIDING)
    try:
        if guarantee is not Guarantee.AT_LEAST_ONCE:
            plan = _named(make_durable(options, decision, written.rows), reports, options)
            reached(Step.DRIVER_SYNCED)
            repeated = _make_visible(options, guarantee, decision, plan, written, forget=forget)
    except ClientError as error:
        raise SinkFailure(_not_committed(guarantee, decision, error)) from error
    reached(Step.DRIVER_DECIDED)
    _tell(decision, written, repeated=repeated, took_s=time.monotonic() - started_s)


def _named(plan: FamilyPlan, reports: Reports, options: SinkOptions) -> FamilyPlan:
    """Adds the query's name to a plan, for `cordwood transaction families`. A query may have a family for each topic
    that its foreachBatch writes to: the topic tells these apart."""
    name = next((report.query_name for report in reports if report is not None and report.query_name), None)
    if name is None:
        return plan
    if options.batch_id is not None and options.topic is not None:
        name = f"{name} to {options.topic}"
    return plan._replace(text=with_query_name(plan.text, name, MAX_PLAN_BYTES))


def _make_visible(
    options: SinkOptions, guarantee: Guarantee, decision: Decision, plan: FamilyPlan, written: Written, *, forget: bool
) -> bool:
    """Makes the batch visible. Returns True if it was visible before. Raises ChangedBatch if another batch of its
    number was."""
    cluster = cluster_of(options.client)
    if guarantee is Guarantee.TASK:
        for slot in decision.winners:
            cluster.end_transaction(slot.transactional_id, slot.producer, commit=True)
        return False
    if not decision.winners and not cluster.supports(ApiKey.FAMILY_DECIDE):
        return False  # no task had rows, so none has found out that this broker has no families
    if not decision.winners:
        check_family_is_known(cluster, options, decision)
    winners = [FamilyMember(*slot) for slot in decision.winners]
    decided = cluster.family_decide(
        decision.family, decision.batch_id, commit=True, winners=winners, forget=forget, plan=plan
    )
    if decided.already_decided:
        check_repeated(cluster, options, decision, plan, written)
    return decided.already_decided


def abort_batch(
    options: SinkOptions, reports: Reports, batch_id: int, *, forget: bool, family: str | None = None
) -> None:
    """Ends the batch's open transactions. Raises nothing: the write has failed already, and a timeout ends the rest.

    `family` is given if it is known without a report. Otherwise, if all tasks were killed before they reported, their
    transactions stay open until the next decision or the timeout.
    """
    decision = decision_of(reports, batch_id) or (None if family is None else Decision(family, batch_id, ()))
    if decision is None:
        return
    reached(Step.DRIVER_ABORTING)
    guarantee = _guarantee_of(reports) if any(reports) else options.guarantee
    try:
        cluster = cluster_of(replace(options.client, retry_timeout_ms=ABORT_WITHIN_MS))
        if guarantee is Guarantee.TASK:
            for slot in decision.winners:
                abandon_slot(cluster, slot)
        elif guarantee is Guarantee.MICRO_BATCH and cluster.supports(ApiKey.FAMILY_DECIDE):
            cluster.family_decide(decision.family, batch_id, commit=False, forget=forget)
    except ClientError as error:
        _log.warning("batch %d of %s: what it has open is left to its timeout: %s", batch_id, decision.family, error)
    reached(Step.DRIVER_ABORTED)


def _guarantee_of(reports: Reports) -> Guarantee:
    """The guarantee of a write. Tasks without rows count only if none has rows: they do not ask what the broker can
    do."""
    found = {report.guarantee for report in reports if report is not None and report.rows + report.skipped_rows}
    assert len(found) <= 1, f"the tasks of one write promise different things: {found}"
    return found.pop() if found else next(report.guarantee for report in reports if report is not None)


def _tell_what_is_weaker(options: SinkOptions) -> None:
    """Warns once in the life of the driver's worker, which is as long as the session's."""
    global _told_what_is_weaker
    if not _told_what_is_weaker:
        _told_what_is_weaker = True
        _log.warning("%s", WEAKER.format(timeout_ms=transaction_timeout_ms(options, Guarantee.TASK)))


def _not_committed(guarantee: Guarantee, decision: Decision, error: ClientError) -> str:
    what = f"Batch {decision.batch_id} of '{decision.family}' was not committed: {error}."
    if guarantee is Guarantee.TASK:
        return f"{what} Some of its tasks may be: start the query again, which writes the others."
    return (
        f"{what} None of its rows are visible unless the answer got lost; start the query again, which finds out. "
        "If its transactions timed out because no task ran for long, raise 'kafka.transaction.timeout.ms'."
    )


def _tell(decision: Decision, sums: Written, *, repeated: bool, took_s: float) -> None:
    batch = f"batch {decision.batch_id} of {decision.family}"
    if sums.skipped_rows:
        _log.warning("%s was written before: %d rows were read and not written", batch, sums.skipped_rows)
    elif repeated:
        _log.warning("%s was decided before, by a request whose answer got lost or by another driver", batch)
    else:
        _log.info(
            "%s: %d rows, %d bytes in %d tasks, committed in %.0f ms",
            batch,
            sums.rows,
            sums.bytes,
            sums.tasks,
            took_s * 1000,
        )

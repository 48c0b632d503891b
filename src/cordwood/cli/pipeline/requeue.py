"""`cordwood pipeline requeue`: sends quarantined records once more."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.pipeline.options import Directory, Target, check_spark_is_installed, refusals
from cordwood.cli.terminal.asking import DRY_RUN, DryRun
from cordwood.cli.terminal.connecting import ClientConfig, Servers, bootstrap_of
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import print_json, remark, say
from cordwood.model.failure import ExitCode
from cordwood.model.quantities import count_in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cordwood.cli.pipeline.target import Found
    from cordwood.cli.terminal.doing import Doing
    from cordwood.client.bootstrap import Bootstrap
    from cordwood.pipelines.editions.editions import Edition
    from cordwood.pipelines.execution.requeueing import Chosen, Requeue, Requeued
    from cordwood.pipelines.rows.isolation import Origin


def requeue(
    target: Target,
    superseded: Annotated[
        bool,
        typer.Option("--superseded", help="Also records that would undo a later record with the same key."),
    ] = False,
    dry_run: DryRun = False,
    directory: Directory = None,
    servers: Servers = None,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Send the quarantined records of the live edition through again, each once. The pipeline must not be running.

    A FILE sends them through the file as it is now, a NAME through the definition that the live edition keeps. Records
    that fail again go back to quarantine, and the exit code is 5. A record that would undo a later one stays in
    quarantine: if the pipeline writes a table with a key, and a record with the same key was read later from the same
    partition. A record without a key counts as older than every later record of its partition. Runs on Spark.
    """
    with refusals():
        from cordwood.administration.connection import reach
        from cordwood.cli.pipeline.target import find, say_which_code
        from cordwood.pipelines.definition.errors import AlreadyRunning
        from cordwood.pipelines.editions.control import Serving
        from cordwood.pipelines.editions.live_edition import locked_live_edition, would_be_live_edition

        bootstrap = bootstrap_of(servers, client_config)
        check_spark_is_installed()
        found = find(target, directory)
        say_which_code(found, "requeue")
        found.state.live_edition()
        reach(bootstrap)
        if dry_run:
            edition = would_be_live_edition(found.project, found.state, found.pipeline)
            chosen = _chosen(found, edition, bootstrap, superseded=superseded)
            _show_chosen(found.pipeline.name, chosen, as_json=as_json)
            return
        name = found.pipeline.name
        stage = Serving(found.project.directory).pipelines().get(name, {}).get("stage")
        if stage in ("starting", "running"):
            hint = (
                f"`cordwood pipeline stop {name}` ends it after its batch; `cordwood pipeline start {name}` afterwards"
            )
            raise AlreadyRunning(f"`cordwood pipeline serve` runs {name}", hint)
        now_ms = int(time.time() * 1000)
        edition, lock = locked_live_edition(found.project, found.state, found.pipeline, in_place=False, now_ms=now_ms)
        try:
            done = _sent(found, edition, bootstrap, superseded=superseded)
            if edition.is_trial and done.sent:
                found.state.adopt(edition)
        finally:
            lock.release()
    _show(found.pipeline.name, found.pipeline.quarantine_topic, done, as_json=as_json)
    if stage == "stopped" and not as_json:
        remark(f"`cordwood pipeline start {name}` has `serve` go on with it.")
    if done.failed_again:
        raise typer.Exit(ExitCode.PROBLEM_FOUND)


def _sent(found: "Found", edition: "Edition", bootstrap: "Bootstrap", *, superseded: bool) -> "Requeued":
    from cordwood.cli.terminal.doing import Doing
    from cordwood.pipelines.execution.requeueing import Requeued

    with Doing() as doing:
        requeue = _requeue(found, edition, bootstrap, doing)
        if requeue is None:
            return Requeued(0, 0, (), False, {})
        doing.show("Sending quarantined records through again …")
        return requeue.run(superseded=superseded)


def _chosen(found: "Found", edition: "Edition", bootstrap: "Bootstrap", *, superseded: bool) -> "Chosen":
    from cordwood.cli.terminal.doing import Doing
    from cordwood.pipelines.execution.requeueing import Chosen

    with Doing() as doing:
        requeue = _requeue(found, edition, bootstrap, doing)
        if requeue is None:
            return Chosen((), (), left=False, begun=False)
        doing.show("Looking through quarantined records …")
        return requeue.would_run(superseded=superseded)


def _requeue(found: "Found", edition: "Edition", bootstrap: "Bootstrap", doing: "Doing") -> "Requeue | None":
    """A requeue on Spark; None if it is certain that there is nothing to send, and Spark need not be started."""
    from cordwood.cli.pipeline.quiet_spark import quiet_session
    from cordwood.pipelines.execution.idle import has_nothing_to_requeue
    from cordwood.pipelines.execution.requeueing import Requeue, check_requeue_is_possible

    check_requeue_is_possible(found.pipeline, found.state, edition)
    if has_nothing_to_requeue(found.pipeline, found.state, edition, bootstrap):
        return None
    doing.show("Starting Java and Spark …")
    spark = quiet_session(f"requeue {found.pipeline.name}", found.pipeline.settings.spark)
    return Requeue(spark, found.bound(edition), found.state, edition, bootstrap)


def _show_chosen(name: str, chosen: "Chosen", *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "pipeline": name,
                "would_send": [str(origin) for origin in chosen.records],
                "superseded": [str(origin) for origin in chosen.superseded],
                "more": chosen.left,
                "begun": chosen.begun,
                "dry_run": True,
            }
        )
        return
    say(f"{name}: {count_in_words(len(chosen.records), 'record')} would be sent through again")
    for origin in chosen.records:
        say(f"  {origin}")
    if chosen.begun:
        remark("They are those of a requeue that was interrupted: it is finished first, as it was planned.")
    _remark_others(chosen.superseded, left=chosen.left)
    remark(DRY_RUN)


def _show(name: str, quarantine: str, done: "Requeued", *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "pipeline": name,
                "sent": done.sent,
                "failed_again": done.failed_again,
                "superseded": [str(origin) for origin in done.superseded],
                "rows_out": dict(done.rows_out),
                "rules": {rule: dict(counts) for rule, counts in done.rules.items()},
                "more": done.left,
                "reasons": [f"{origin}: {error}" for origin, error in done.reasons],
            }
        )
        return
    sent = count_in_words(done.sent, "record")
    say(f"{name}: {sent} sent through again, {done.failed_again} failed again")
    for origin, error in done.reasons:
        say(f"  {origin}: {error}")
    if done.failed_again > len(done.reasons):
        more = done.failed_again - len(done.reasons)
        say(f"  and {more:,} more: `cordwood consume {quarantine}` shows them")
    for rule, counts in done.rules.items():
        if "dropped" in counts:
            say(f"  {counts['dropped']:,} dropped by {rule}")
    _remark_others(done.superseded, left=done.left)


def _remark_others(superseded: "Sequence[Origin]", *, left: bool) -> None:
    """Names the quarantined records that are not sent."""
    from cordwood.pipelines.execution.requeueing import MAX_RECORDS

    if superseded:
        shown = ", ".join(str(origin) for origin in superseded[:5])
        count = count_in_words(len(superseded), "record")
        remark(f"{count} stay in quarantine, because a later record with the same key was read: {shown}.")
        remark("--superseded sends them all the same.")
    if left:
        remark(f"There are more than {MAX_RECORDS:,}: the same command again sends the next ones.")

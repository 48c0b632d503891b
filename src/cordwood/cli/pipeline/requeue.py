"""`cordwood pipeline requeue`: quarantined records once more."""

import time
from typing import Annotated

import typer

from cordwood.cli.failure import ExitCode
from cordwood.cli.options import DEFAULT_BOOTSTRAP_SERVERS, AsJson, BootstrapServers
from cordwood.cli.output import count_in_words, print_json, remark, say
from cordwood.cli.pipeline.options import Directory, Target, check_spark_is_installed, refusals


def requeue(
    target: Target,
    superseded: Annotated[
        bool,
        typer.Option("--superseded", help="Also records that would undo a later record with the same key."),
    ] = False,
    directory: Directory = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    as_json: AsJson = False,
) -> None:
    """Send the quarantined records of the live edition through again, each once. The pipeline must not be running.

    A FILE sends them through the file as it is now, a NAME through the definition that the live edition keeps. Records
    that fail again go back to quarantine, and the exit code is 5. A record that would undo a later one stays in
    quarantine: where the pipeline writes a table with a key, and a record with the same key was read after it from the
    same partition. A record without a key counts as older than every later record of its partition. Runs on Spark.
    """
    with refusals():
        from cordwood.cli.connection import reachable_family
        from cordwood.cli.pipeline.doing import Doing
        from cordwood.cli.pipeline.quiet_spark import quiet_session
        from cordwood.cli.pipeline.target import find, say_which_code
        from cordwood.pipelines.idle import has_nothing_to_requeue
        from cordwood.pipelines.requeueing import MAX_RECORDS, Requeue, Requeued, check_requeue_is_possible
        from cordwood.pipelines.running import locked_live_edition

        check_spark_is_installed()
        found = find(target, directory)
        say_which_code(found, "requeue")
        found.state.live_edition()
        reachable_family(bootstrap_servers)
        now_ms = int(time.time() * 1000)
        edition, lock = locked_live_edition(found.project, found.state, found.pipeline, in_place=False, now_ms=now_ms)
        try:
            check_requeue_is_possible(found.pipeline, found.state, edition)
            if has_nothing_to_requeue(found.pipeline, found.state, edition, bootstrap_servers):
                done = Requeued(0, 0, (), False, {})
            else:
                with Doing() as doing:
                    doing.show("Starting Java and Spark …")
                    spark = quiet_session(f"requeue {found.pipeline.name}", found.pipeline.settings.spark)
                    doing.show("Sending quarantined records through again …")
                    requeue = Requeue(spark, found.pipeline, found.state, edition, bootstrap_servers)
                    done = requeue.run(superseded=superseded)
            if edition.is_trial and done.sent:
                found.state.adopt(edition)
        finally:
            lock.release()
    if as_json:
        print_json(
            {
                "pipeline": found.pipeline.name,
                "sent": done.sent,
                "failed_again": done.failed_again,
                "superseded": [str(origin) for origin in done.superseded],
                "rows_out": dict(done.rows_out),
                "more": done.left,
                "reasons": [f"{origin}: {error}" for origin, error in done.reasons],
            }
        )
        raise typer.Exit(ExitCode.PROBLEM_FOUND if done.failed_again else ExitCode.DONE)
    sent = count_in_words(done.sent, "record")
    say(f"{found.pipeline.name}: {sent} sent through again, {done.failed_again} failed again")
    for origin, error in done.reasons:
        say(f"  {origin}: {error}")
    if done.failed_again > len(done.reasons):
        more = done.failed_again - len(done.reasons)
        say(f"  and {more:,} more: `cordwood consume {found.pipeline.quarantine_topic}` shows them")
    if done.superseded:
        shown = ", ".join(str(origin) for origin in done.superseded[:5])
        left = count_in_words(len(done.superseded), "record")
        remark(f"{left} stay in quarantine, because a later record with the same key was read: {shown}.")
        remark("--superseded sends them all the same.")
    if done.left:
        remark(f"There are more than {MAX_RECORDS:,}: the same command again sends the next ones.")
    if done.failed_again:
        raise typer.Exit(ExitCode.PROBLEM_FOUND)

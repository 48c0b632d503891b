"""`cordwood pipeline requeue`: quarantined records once more."""

import time
from typing import Annotated

import typer

from cordwood.cli.options import DEFAULT_BOOTSTRAP_SERVERS, AsJson, BootstrapServers
from cordwood.cli.output import count_in_words, print_json, remark, say
from cordwood.cli.pipeline.options import Directory, Target, check_spark_is_installed, refusals


def requeue(
    target: Target,
    superseded: Annotated[
        bool,
        typer.Option(
            "--superseded",
            help="Also records of whose key a later one was, or may have been, read: they would undo it.",
        ),
    ] = False,
    directory: Directory = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    as_json: AsJson = False,
) -> None:
    """Send the quarantined records of the live edition through again, each once. The pipeline must not be running.

    Records that fail again go back to quarantine. Where the pipeline writes a table with a key, records of whose key a
    later one was read from the same partition are left where they are. Of a record without a key every later one may
    be of the same row, so it counts; so do those that retention has removed. Runs on Spark.
    """
    with refusals():
        from cordwood.cli.connection import reachable_family
        from cordwood.cli.pipeline.quiet_spark import quiet_session
        from cordwood.cli.pipeline.target import find, say_which_code
        from cordwood.pipelines.requeueing import MAX_RECORDS, Requeue
        from cordwood.pipelines.running import locked_live_edition

        check_spark_is_installed()
        found = find(target, directory)
        say_which_code(found, "requeue")
        found.state.live_edition()
        reachable_family(bootstrap_servers)
        now_ms = int(time.time() * 1000)
        edition, lock = locked_live_edition(found.project, found.state, found.pipeline, in_place=False, now_ms=now_ms)
        try:
            spark = quiet_session(f"requeue {found.pipeline.name}", found.pipeline.settings.spark)
            done = Requeue(spark, found.pipeline, found.state, edition, bootstrap_servers).run(superseded=superseded)
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
            }
        )
        return
    sent = count_in_words(done.sent, "record")
    say(f"{found.pipeline.name}: {sent} sent through again, {done.failed_again} failed again")
    if done.superseded:
        shown = ", ".join(str(origin) for origin in done.superseded[:5])
        remark(f"{count_in_words(len(done.superseded), 'record')} superseded by later ones: {shown}")
    if done.left:
        remark(f"There are more than {MAX_RECORDS:,}: the same command again sends the next ones.")

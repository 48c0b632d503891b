"""`cordwood pipeline replay`: a new edition, built from history beside the live one."""

import time
from contextlib import ExitStack
from typing import Annotated

import typer

from cordwood.cli.pipeline.options import Directory, Metrics, Target, Verbose, check_spark_is_installed, refusals
from cordwood.cli.pipeline.run import DEFAULT_MAX_RESTARTS, MaxRestarts
from cordwood.cli.terminal.connecting import ClientConfig, Servers, bootstrap_of
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import remark
from cordwood.model.failure import ExitCode, Failure


def replay(
    target: Target,
    starting: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help='earliest, @2026-01-31T12:00:00Z, @1700000000000 (milliseconds) or offsets: {"orders": {"0": 23}}.',
        ),
    ] = "earliest",
    follow: Annotated[bool, typer.Option("--follow", help="Go on following the log after it has caught up.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin another edition, even if one was begun the same way.")
    ] = False,
    rows_per_second: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Read at most so many rows a second: others need the brokers, too. Default: no limit.",
        ),
    ] = None,
    downstream: Annotated[
        bool,
        typer.Option(
            "--downstream",
            help="Replay all pipelines that read its outputs, too, into a set that `swap` makes live as one.",
        ),
    ] = False,
    max_restarts: MaxRestarts = DEFAULT_MAX_RESTARTS,
    metrics: Metrics = None,
    directory: Directory = None,
    servers: Servers = None,
    client_config: ClientConfig = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline over history into fresh tables and topics, beside the live ones, until it has caught up.

    A FILE is replayed as it is now, a NAME as the live edition keeps it. Readers keep getting the live edition until
    `cordwood pipeline swap`. Outputs that are not replayable get nothing. An interrupted replay goes on at its last
    place if the same command is given again and the file is the same. With --downstream each pipeline that reads the
    outputs, directly or through others, is taken by its file as it is now and reads the fresh outputs.

    A replay gives way: on this machine it runs with less priority than what is live.
    """
    with refusals(), ExitStack() as shown:
        from cordwood.administration.connection import reach
        from cordwood.cli.pipeline.foreground import (
            check_rules_first,
            metrics_at,
            run_in_foreground,
            tell_that_nothing_is_there,
        )
        from cordwood.cli.pipeline.target import find, say_which_code
        from cordwood.cli.terminal.silent_brokers import naming_silent_brokers
        from cordwood.pipelines.definition.starting import EXAMPLES, starting_options
        from cordwood.pipelines.editions.positions import places_in_words
        from cordwood.pipelines.editions.run_lock import RunLock
        from cordwood.pipelines.editions.swapping import lock_path
        from cordwood.pipelines.execution.idle import has_nothing_to_do
        from cordwood.pipelines.execution.reading_here import log_starts
        from cordwood.pipelines.execution.replaying import begun_edition, edition_for
        from cordwood.pipelines.execution.topics import check_inputs, prepare_topics
        from cordwood.pipelines.formats.trial_writes import check_tables_can_be_written

        bootstrap = bootstrap_of(servers, client_config)
        try:
            starting_options(starting)
        except ValueError as error:
            raise Failure("USAGE", f"--from: {error}", EXAMPLES, ExitCode.USAGE) from error
        if downstream and follow:
            hint = "it ends when all have caught up; then `cordwood pipeline replay FILE --follow` of each goes on"
            raise Failure("USAGE", "--downstream and --follow are not for one command", hint, ExitCode.USAGE)
        check_spark_is_installed()
        found = find(target, directory)
        say_which_code(found, "replay")
        monitor = shown.enter_context(metrics_at(metrics, found.project, bootstrap))
        reach(bootstrap)
        if downstream:
            from cordwood.cli.pipeline.replay_downstream import replay_downstream

            replay_downstream(
                found,
                starting=starting,
                fresh=fresh,
                bootstrap=bootstrap,
                rows_per_second=rows_per_second,
                max_restarts=max_restarts,
                as_json=as_json,
                monitor=monitor,
                verbose=verbose,
            )
            return
        pipeline = found.bound()
        with naming_silent_brokers(bootstrap):
            check_inputs(bootstrap, pipeline)
        check_tables_can_be_written(pipeline)
        if begun_edition(found.project, found.state, found.pipeline, starting=starting, fresh=fresh) is None:
            check_rules_first(found.pipeline, found.source_file)
        now_ms = int(time.time() * 1000)
        with found.state.changing():
            edition = edition_for(
                found.project,
                found.state,
                found.pipeline,
                starting=starting,
                fresh=fresh,
                now_ms=now_ms,
                source_file=str(found.source_file),
            )
        pipeline = found.bound(edition)
        topics = [each.name for each in pipeline.inputs.values()]
        if starting == "earliest" and not as_json and (gone := log_starts(bootstrap, topics)):
            remark(f"History is not all there: what was before {places_in_words(gone)} is gone and cannot be replayed.")
        lock = RunLock(lock_path(found.state, edition.name))
        lock.take(f"edition {edition.name} of {found.pipeline.name}", now_ms)
        try:
            with naming_silent_brokers(bootstrap):
                prepare_topics(pipeline, found.state, edition, bootstrap, remark)
                has_caught_up = edition.caught_up_at_ms is not None and not follow
                is_to_run = not has_caught_up or not has_nothing_to_do(found.route(edition, bootstrap))
            if edition.effects and not as_json:
                remark(f"Not replayable, so nothing is written to: {', '.join(edition.effects)}")
            if not is_to_run:
                tell_that_nothing_is_there(found, edition, as_json=as_json)
            else:
                run_in_foreground(
                    found,
                    edition,
                    lock,
                    bootstrap=bootstrap,
                    once=not follow,
                    replay=True,
                    max_restarts=max_restarts,
                    as_json=as_json,
                    rows_per_second=rows_per_second,
                    monitor=monitor,
                    verbose=verbose,
                )
        finally:
            lock.release()
    if not as_json:
        name = found.pipeline.name
        together = found.project.sets.beside(name, edition.name)
        what = "it" if together is None else f"its set ({together})"
        remark(
            f"`cordwood pipeline compare {name}` shows what differs, `cordwood pipeline swap {name}` makes {what} live."
        )

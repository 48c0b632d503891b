"""`cordwood pipeline run`: runs the live edition, supervised, in the foreground."""

import time
from contextlib import ExitStack
from typing import Annotated

import typer

from cordwood.cli.pipeline.options import (
    Directory,
    Metrics,
    PythonMemory,
    Target,
    Verbose,
    check_spark_is_installed,
    refusals,
)
from cordwood.cli.terminal.connecting import ClientConfig, Servers, bootstrap_of
from cordwood.cli.terminal.options import AsJson

DEFAULT_MAX_RESTARTS = 8

MaxRestarts = Annotated[
    int,
    typer.Option(
        "--max-restarts",
        metavar="N",
        min=0,
        help="How often in a row it is started again after a failure; the next one is final. A batch done begins anew.",
    ),
]


def run(
    target: Target,
    once: Annotated[bool, typer.Option("--once", help="Read what there is, and end.")] = False,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place", help="Let the file's version go on in the live tables from where the live version stopped."
        ),
    ] = False,
    max_restarts: MaxRestarts = DEFAULT_MAX_RESTARTS,
    metrics: Metrics = None,
    python_memory: PythonMemory = None,
    directory: Directory = None,
    servers: Servers = None,
    client_config: ClientConfig = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline until it is stopped, with a line for every batch.

    A FILE is run as it is now, if its version is the live one; a NAME runs the definition that the live edition keeps.
    A changed file becomes the edition's definition with its first finished batch. Temporary failures are tried again,
    with growing pauses. The run ends after the batch under way on SIGTERM, Ctrl-C or `cordwood pipeline stop`.
    """
    with refusals(), ExitStack() as shown:
        from cordwood.administration.connection import reach
        from cordwood.cli.pipeline.foreground import (
            metrics_at,
            run_in_foreground,
            tell_that_nothing_is_there,
        )
        from cordwood.cli.pipeline.target import find, say_which_code
        from cordwood.cli.terminal.output import remark
        from cordwood.cli.terminal.silent_brokers import naming_silent_brokers
        from cordwood.pipelines.editions.live_edition import (
            begin_checked,
            is_to_make_topics,
            locked_live_edition,
            unmake_unchecked,
        )
        from cordwood.pipelines.execution.idle import has_nothing_to_do
        from cordwood.pipelines.execution.topics import check_inputs, prepare_topics
        from cordwood.pipelines.formats.trial_writes import check_tables_can_be_written

        bootstrap = bootstrap_of(servers, client_config)
        check_spark_is_installed()
        found = find(target, directory)
        say_which_code(found, "run")
        monitor = shown.enter_context(metrics_at(metrics, found.project, bootstrap))
        reach(bootstrap)
        with naming_silent_brokers(bootstrap):
            check_inputs(bootstrap, found.bound())
        check_tables_can_be_written(found.pipeline)
        is_first = found.state.live() is None and bool(found.pipeline.rules)
        now_ms = int(time.time() * 1000)
        edition, lock = locked_live_edition(
            found.project, found.state, found.pipeline, in_place=in_place, now_ms=now_ms, is_unchecked=is_first
        )

        def prepare() -> None:
            if is_first:
                begin_checked(found.project, found.state, found.pipeline, edition, now_ms)
            with naming_silent_brokers(bootstrap):
                prepare_topics(found.bound(edition), found.state, edition, bootstrap, remark)

        try:
            # Only Spark can check rules, and a refusal comes before anything is made.
            is_to_check = bool(found.pipeline.rules) and (is_first or is_to_make_topics(found.state, edition))
            if not is_to_check:
                prepare()
                with naming_silent_brokers(bootstrap):
                    has_nothing = once and has_nothing_to_do(found.route(edition, bootstrap))
                if has_nothing:
                    tell_that_nothing_is_there(found, edition, as_json=as_json)
                    return
            run_in_foreground(
                found,
                edition,
                lock,
                bootstrap=bootstrap,
                once=once,
                replay=False,
                max_restarts=max_restarts,
                as_json=as_json,
                monitor=monitor,
                python_bytes=python_memory,
                verbose=verbose,
                when_checked=prepare if is_to_check else None,
            )
        finally:
            if is_first:
                unmake_unchecked(found.state, edition)
            lock.release()

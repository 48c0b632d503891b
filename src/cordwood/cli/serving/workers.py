"""Starts the workers from the flags of `cordwood serve --workers`."""

import asyncio
import logging
import os
import sys

from cordwood.broker.supervision.cores import usable_cores
from cordwood.broker.supervision.local_brokers import describe, run, words_of
from cordwood.broker.supervision.workers import Plan, Workers
from cordwood.cli.serving.start import LOG_FILE_HINT, Flags, refuse_plain_text, settings_from
from cordwood.cli.terminal.output import print_json_line, say
from cordwood.model.errors import EnvironmentFailure, LogFileFailure
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.settings.listeners import SASL_SSL

logger = logging.getLogger("cordwood.workers")

MAX_WORKERS = 100
AUTO = "auto"


def serve_with_workers(flags: Flags, workers: str, *, as_json: bool) -> None:
    """Runs the workers until SIGTERM, Ctrl-C or the end of the terminal. Raises Failure."""
    settings = settings_from(flags, os.environ)
    if settings.cluster_store:
        raise Failure(
            "USAGE",
            "--workers and --store contradict each other: workers share the metadata of their own directory",
            "for a cluster over several machines start one `cordwood serve --store` on each",
            ExitCode.USAGE,
        )
    from cordwood.broker.machine.log_lines import log_to

    try:
        log_to(settings.logging_file, settings.logging_format)
    except LogFileFailure as error:
        raise Failure("STORAGE", str(error), LOG_FILE_HINT) from error
    plan = Plan(_count(workers), settings, _words(flags), dict(os.environ))
    if flags.secure:
        plan = _secured(plan)
    else:
        refuse_plain_text(settings.data_directories[0], settings.texts)

    def ready(supervisor: Workers) -> None:
        if as_json:
            print_json_line(describe(supervisor.brokers, plan.secure))
        else:
            count = f"{plan.workers} workers" if plan.workers > 1 else "1 worker"
            spoken, files = ("", "") if plan.secure is None else (f", {SASL_SSL}", plan.secure.in_words())
            say(
                f"cordwood ready on {supervisor.bootstrap_servers}{spoken} ({count}; data in {settings.log_dirs}"
                f"{files})"
            )
        sys.stdout.flush()

    asyncio.run(run(lambda: Workers(plan, logger.info), ready, logger.info))


def _secured(plan: Plan) -> Plan:
    """The plan for workers with TLS, users and rights. Raises Failure."""
    from cordwood.broker.secure.preparing import prepare

    try:
        settings, directory, remark = prepare(plan.settings)
    except (EnvironmentFailure, OSError) as error:
        raise Failure("STORAGE", str(error)) from error
    if remark:
        logger.info("%s", remark)
    given = plan.settings.texts
    made = {name: text for name, text in settings.texts.items() if given.get(name) != text}
    return plan._replace(settings=settings, words=(*plan.words, *words_of(made)), secure=directory)


def _count(workers: str) -> int:
    if workers == AUTO:
        return min(usable_cores(), MAX_WORKERS)
    if not workers.isdecimal() or not 1 <= int(workers) <= MAX_WORKERS:
        raise Failure(
            "USAGE",
            f"--workers {workers!r} is neither `{AUTO}` nor a number from 1 to {MAX_WORKERS}",
            "",
            ExitCode.USAGE,
        )
    return int(workers)


def _words(flags: Flags) -> tuple[str, ...]:
    """The flags for all workers. Those of a single worker override them."""
    words: list[str] = []
    if flags.config is not None:
        words += ["--config", os.path.abspath(flags.config)]
    if flags.rack is not None:
        words += ["--rack", flags.rack]
    if flags.log_format is not None:
        words += ["--log-format", flags.log_format]
    if flags.log_file is not None:
        words += ["--log-file", os.path.abspath(flags.log_file)]
    for assignment in flags.assignments:
        words += ["--set", assignment]
    return tuple(words)

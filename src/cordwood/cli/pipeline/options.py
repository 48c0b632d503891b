"""Shared parts of the pipeline commands: options, and failures."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Annotated, Final

import typer

from cordwood.cli.terminal.options import wait_s
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import size_bytes

PipelineName = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.", show_default=False)]

Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE|NAME",
        help="The pipeline's file (FILE:NAME if it declares several), or its name once it has run.",
        show_default=False,
    ),
]

Directory = Annotated[
    str | None,
    typer.Option(
        "--directory",
        "-d",
        metavar="DIR",
        envvar="CORDWOOD_PIPELINES",
        help="Where pipelines keep checkpoints, tables and state; ./cordwood-pipelines if not given.",
        show_default=False,
    ),
]

Verbose = Annotated[
    bool,
    typer.Option("--verbose", help="Say in the line of a batch where its time went: each output, the commit, Spark."),
]

Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Answer Prometheus there, as long as it runs: rows, lag, failures, time to data loss.",
        show_default=False,
    ),
]


def _size(given: str | int) -> int:
    try:
        return given if isinstance(given, int) else size_bytes(given)
    except ValueError as reason:
        raise Failure("USAGE", str(reason), "--python-memory 4GiB", ExitCode.USAGE) from None


PythonMemory = Annotated[
    int | None,
    typer.Option(
        "--python-memory",
        metavar="SIZE",
        parser=_size,
        help="What the Python processes of Spark may take together: past it the largest is killed and its batch fails. "
        "Half of the machine's memory if not given.",
        show_default=False,
    ),
]

StopTimeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        parser=wait_s(0.1),
        help="How long a batch under way may take to end.",
    ),
]

DEFAULT_STOP_TIMEOUT_S = 120.0

_LOST_IN_SPARK: Final = re.compile(r"cordwood\.client\.errors\.BrokerUnreachable: (.+)")
"""In the failure of a job of Spark's that reads the log."""
_EXIT_CODES = {
    "NOT_FOUND": ExitCode.NOT_FOUND,
    "OVER_BUDGET": ExitCode.PROBLEM_FOUND,
    "RULE_BROKEN": ExitCode.PROBLEM_FOUND,
}


def check_spark_is_installed() -> None:
    """Fails before anything is made or started: a worker without Spark fails the same way every time."""
    for name in ("pyspark", "pyarrow", "numba", "deltalake"):
        if find_spec(name) is None:
            raise _no_spark(name)
    from cordwood.spark.releases.capabilities import NotInThisSpark, running

    try:
        running().require_streams("A pipeline")
    except NotInThisSpark as lacking:
        raise Failure("SPARK_TOO_OLD", str(lacking)) from None


@contextmanager
def refusals() -> Iterator[None]:
    """Turns refusals of `cordwood.pipelines` into failures of the command, and so an installation without Spark, a file
    that cannot be read or written, and brokers that are lost on the way."""
    from cordwood.pipelines.definition.errors import Refusal

    try:
        yield
    except Refusal as refusal:
        raise as_failure(refusal.code, refusal.message, refusal.hint) from refusal
    except OSError as error:
        if error.filename is None:
            raise
        raise Failure("NOT_ACCESSIBLE", f"{error.filename}: {error.strerror}") from error
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("pyspark", "pyarrow", "deltalake", "numba", "pandas"):
            raise
        raise _no_spark(error.name) from error
    except (Failure, typer.Exit, typer.Abort):
        raise
    except Exception as error:
        failure = failure_of_brokers(error)
        if failure is None:
            raise
        raise failure from error


def failure_of_brokers(error: Exception) -> Failure | None:
    """The failure for an answer of the brokers, or for the lack of one; None for another error. Its exit code says
    whether brokers were lost: the same question may be answered a little later."""
    from confluent_kafka import KafkaException

    from cordwood.client.errors import BrokerUnreachable, ClientError, EndNotReached, RequestRefused
    from cordwood.client.retries import PASSING

    lost = _LOST_IN_SPARK.search(str(error))
    if isinstance(error, KafkaException):
        told = error.args[0]
        text = told.str() or told.name()
        if told.code() > 0 and told.code() not in PASSING:
            return Failure(told.name(), f"the brokers refused: {text}")
    elif isinstance(error, ClientError):
        text = str(error)
        is_passing = isinstance(error, RequestRefused) and error.code in PASSING
        if not is_passing and not isinstance(error, BrokerUnreachable | EndNotReached):
            return Failure("FAILED", text)
    elif lost is not None:
        text = lost[1]
    else:
        return None
    return Failure(
        "BROKER_NOT_REACHABLE",
        f"the brokers were lost on the way: {text}",
        "`cordwood cluster status` says which of them answer; once they do, the same command goes on where it was",
        ExitCode.NOT_REACHABLE,
    )


def as_failure(code: str, message: str, hint: str) -> Failure:
    return Failure(code, message, hint, _EXIT_CODES.get(code, ExitCode.FAILED))


def _no_spark(name: str) -> Failure:
    return Failure("NO_SPARK", f"{name} is not installed", "in a clone: pip install '.[spark]'")

"""`cordwood audit`: checks a topic's whole history for order, duplicates, gaps and skew."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, TopicName
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.client.bootstrap import Bootstrap
    from cordwood.pipelines.audit.report import Finding, Questions, Report

CHECKS = ("split-keys", "inversions", "duplicates", "gaps", "skew")


def audit(
    topic: TopicName,
    event_id: Annotated[
        str | None,
        typer.Option(
            "--event-id",
            metavar="header:NAME|json:PATH",
            help="Where a record has the id of its event. Two records with one id, in any partitions, are duplicates; "
            "without this option, two with the same producer and sequence number are.",
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="CHECK",
            help=f"Exit with {ExitCode.PROBLEM_FOUND:d} if this check finds something; may be given several times. The "
            f"checks: {', '.join(CHECKS)}. Default: split-keys, duplicates and gaps.",
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=0, max=100, help="How many examples of each finding to show.")] = 5,
    skew_ratio: Annotated[
        float, typer.Option(min=1.0, help="Report a partition with more than this many times its fair share.")
    ] = 2.0,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
    servers: Servers = None,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Read a whole topic on Spark and report faults in its history.

    Faults are keys in several partitions, times that go back, duplicates, missing offsets, skew and hot keys. Needs
    Spark: `pip install '.[spark]'` in a clone.
    """
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise Failure("SPARK_MISSING", "the audit runs on Spark", "in a clone: pip install '.[spark]'") from None
    from cordwood.administration.topic.view import partition_indexes
    from cordwood.cli.terminal.output import print_json, remark
    from cordwood.client.bootstrap import Bootstrap

    connection = connect(servers, DEFAULT_TIMEOUT_S, client_config)
    bootstrap = Bootstrap(connection.bootstrap_servers, connection.security)
    questions = _questions(topic, event_id, fail_on, samples, skew_ratio, bootstrap)
    # Spark takes seconds to start, and its client a minute to give up on a missing broker.
    partition_indexes(connection, topic)
    if not as_json:
        remark(f"Spark reads all of {topic} ({master}) ...")
    report = _run(questions, master)
    if as_json:
        print_json(report.as_json())
    else:
        _show(report)
    if not report.ok:
        raise typer.Exit(ExitCode.PROBLEM_FOUND)


def _questions(
    topic: str,
    event_id: str | None,
    fail_on: list[str] | None,
    samples: int,
    skew_ratio: float,
    bootstrap: "Bootstrap",
) -> "Questions":
    from cordwood.pipelines.audit.report import FAILING, BadQuestion, Check, EventId, Questions

    try:
        return Questions(
            bootstrap,
            topic,
            EventId.parse(event_id) if event_id is not None else None,
            samples,
            skew_ratio,
            FAILING if fail_on is None else tuple(Check(each) for each in fail_on),
        )
    except BadQuestion as problem:
        raise Failure("USAGE", str(problem), "see `cordwood audit --help`", ExitCode.USAGE) from None
    except ValueError:
        known = ", ".join(CHECKS)
        raise Failure("USAGE", f"--fail-on takes {known}; not {fail_on}", "", ExitCode.USAGE) from None


def _run(questions: "Questions", master: str) -> "Report":
    from pyspark.sql import SparkSession

    from cordwood.client.errors import BrokerUnreachable, ClientError
    from cordwood.pipelines.audit.report import BadQuestion
    from cordwood.pipelines.audit.running import audit as audit_on
    from cordwood.spark import session

    ours = SparkSession.getActiveSession() is None
    spark = session("cordwood audit", master, **{"spark.log.level": "ERROR"})
    try:
        return audit_on(spark, questions)
    except BadQuestion as problem:
        raise Failure(
            "UNKNOWN_TOPIC", str(problem), "`cordwood topic list` lists the topics", ExitCode.NOT_FOUND
        ) from None
    except BrokerUnreachable as problem:
        raise Failure("NOT_REACHABLE", str(problem), "is the broker running?", ExitCode.NOT_REACHABLE) from None
    except ClientError as problem:
        raise Failure("REFUSED", str(problem)) from None
    finally:
        if ours:
            spark.stop()


def _show(report: "Report") -> None:
    from cordwood.cli.terminal.output import print_table, say

    say(f"{report.topic}: {report.records:,} records, {report.keys:,} keys, {len(report.partitions)} partitions")
    print_table(
        ["partition", "from offset", "to", "records", "share"],
        [
            (each.partition, each.start_offset, each.end_offset, each.records, f"{each.share:.1%}")
            for each in report.partitions
        ],
    )
    print_table(
        ["check", "scope of order", "verdict", "found"],
        [(each.check, each.scope, _verdict(report, each), f"{each.found:,} {each.what}") for each in report.findings],
    )
    for each in report.findings:
        examples = [", ".join(f"{name}={value}" for name, value in row.items()) for row in each.samples]
        if each.remarks or examples:
            say(f"{each.check}:")
            for line in (*each.remarks, *examples):
                say(f"  {line}")
    if report.hot_keys:
        total = max(report.records, 1)
        print_table(
            ["hottest keys", "records", "share"],
            [(each["key"], each["records"], f"{each['records'] / total:.1%}") for each in report.hot_keys],
        )
    if report.ok:
        say("verdict: nothing that fails the audit")
    else:
        say(f"verdict: failed by {', '.join(report.failed)}")


def _verdict(report: "Report", finding: "Finding") -> str:
    if finding.found == 0:
        return "clean"
    if finding.explained:
        return "as it should be"
    return "FAILED" if finding.check in report.fail_on else "look at it"

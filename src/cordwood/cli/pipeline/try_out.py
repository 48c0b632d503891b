"""`cordwood pipeline try`: what a pipeline would make of some records, with nothing written."""

import base64
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cordwood.cli.pipeline.options import Directory, Target, check_spark_is_installed, refusals
from cordwood.cli.terminal.connecting import ClientConfig, Servers, bootstrap_of
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import print_json, print_table, remark, say
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import count_in_words

if TYPE_CHECKING:
    from cordwood.cli.pipeline.target import Found
    from cordwood.client.bootstrap import Bootstrap
    from cordwood.pipelines.definition.definition import Pipeline
    from cordwood.pipelines.execution.trial import Trial

_MAX_RECORDS: Final = 100_000
_SHOWN_ROWS: Final = 20
_SHOWN_CELL_LENGTH: Final = 80


def try_out(
    target: Target,
    starting: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest, latest (the last records), @2026-01-31T12:00:00Z, @1700000000000 (milliseconds) or "
            'offsets: {"orders": {"0": 23}}.',
        ),
    ] = "latest",
    records: Annotated[
        int,
        typer.Option(
            "--records",
            metavar="N",
            min=1,
            max=_MAX_RECORDS,
            help="How many records, an equal share of each partition.",
        ),
    ] = 1_000,
    directory: Directory = None,
    servers: Servers = None,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline's function on real records, and show what it would write and quarantine. Nothing is written.

    No topic, edition, checkpoint or group is made. The records go through in one batch: decoding, the function, guarded
    functions and rules work as in a run. The first rows of each output are shown, with --json all of them. A stateful
    function gets the records as ordinary DataFrames. The exit code is 5 if a run would stop: for its budget, or for a
    rule that fails a batch. Runs on Spark.
    """
    with refusals():
        from cordwood.administration.connection import reach
        from cordwood.cli.pipeline.target import find, say_which_code
        from cordwood.pipelines.definition.starting import EXAMPLES, starting_options
        from cordwood.pipelines.execution.topics import check_inputs

        bootstrap = bootstrap_of(servers, client_config)
        try:
            starting_options(starting)
        except ValueError as error:
            raise Failure("USAGE", f"--from: {error}", EXAMPLES, ExitCode.USAGE) from error
        check_spark_is_installed()
        found = find(target, directory)
        say_which_code(found, "try")
        reach(bootstrap)
        pipeline = found.bound()
        check_inputs(bootstrap, pipeline)
        trial = _tried(found, pipeline, bootstrap, starting=starting, records=records)
    problems = _problems(pipeline, trial)
    if as_json:
        print_json(_as_json(pipeline, trial, problems))
    else:
        _show(pipeline, trial)
        for problem in problems:
            remark(problem)
        remark("Nothing was written.")
    if problems:
        raise typer.Exit(ExitCode.PROBLEM_FOUND)


def _tried(found: "Found", pipeline: "Pipeline", bootstrap: "Bootstrap", *, starting: str, records: int) -> "Trial":
    from cordwood.cli.pipeline.quiet_spark import quiet_session
    from cordwood.cli.terminal.doing import Doing
    from cordwood.pipelines.execution.checking_rules import SOURCE, check_rules
    from cordwood.pipelines.execution.sampling import sample
    from cordwood.pipelines.execution.trial import tried
    from cordwood.pipelines.rows.rules import forgiving

    with Doing() as doing:
        doing.show("Reading records …")
        taken = sample(pipeline, bootstrap, starting=starting, records=records)
        doing.show("Starting Java and Spark …")
        spark = quiet_session(f"try {pipeline.name}", pipeline.settings.spark)
        check_rules(pipeline, spark)
        doing.show(f"Trying {count_in_words(taken.num_rows, 'record')} …")
        # PySpark makes no DataFrame of an Arrow table without rows.
        source = spark.createDataFrame(taken) if taken.num_rows else spark.createDataFrame([], SOURCE)
        return tried(forgiving(pipeline, taken.num_rows), source, sets_aside=True)


def _problems(pipeline: "Pipeline", trial: "Trial") -> list[str]:
    """The reasons for which a run would stop at these records."""
    from cordwood.pipelines.definition.expectations import Else

    found = [
        f"The rule {name} would fail the batch, because of {count_in_words(sum(counts.values()), 'record')}."
        for name, counts in trial.rules.items()
        if pipeline.rules[name].else_ is Else.FAIL
    ]
    allowed = pipeline.budget.allowed(trial.rows_in)
    if len(trial.quarantined) > allowed:
        found.append(
            f"The budget is {pipeline.budget}: a batch with {len(trial.quarantined):,} quarantined records would stop "
            "the pipeline."
        )
    return found


def _show(pipeline: "Pipeline", trial: "Trial") -> None:
    say(f"{pipeline.name} (version {pipeline.version}): {count_in_words(trial.rows_in, 'record')} tried")
    for name, output in pipeline.outputs.items():
        rows, tombstones = trial.rows[name], trial.tombstones[name]
        deletes = f", {count_in_words(len(tombstones), 'tombstone')}" if tombstones else ""
        say("")
        say(f"{name} ({output}): {count_in_words(len(rows), 'row')}{deletes}")
        if rows:
            columns = list(rows[0])
            print_table(columns, [[_cell(row[column]) for column in columns] for row in rows[:_SHOWN_ROWS]])
        _say_more(len(rows))
    if trial.quarantined:
        say("")
        say(f"quarantine ({pipeline.quarantine_topic}): {count_in_words(len(trial.quarantined), 'record')}")
        shown = trial.quarantined[:_SHOWN_ROWS]
        cells = [[each.origin, each.rule, each.error, _cell(each.value)] for each in shown]
        print_table(["record", "rule", "error", "value"], cells)
        _say_more(len(trial.quarantined))
    if trial.rules:
        say("")
        counts = [
            [rule, outcome, count] for rule, each in sorted(trial.rules.items()) for outcome, count in each.items()
        ]
        print_table(["rule", "outcome", "count"], counts)


def _say_more(count: int) -> None:
    if count > _SHOWN_ROWS:
        say(f"and {count - _SHOWN_ROWS:,} more: --json shows all")


def _as_json(pipeline: "Pipeline", trial: "Trial", problems: Sequence[str]) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "version": pipeline.version,
        "rows_in": trial.rows_in,
        "outputs": {name: [_in_json(row) for row in rows] for name, rows in trial.rows.items()},
        "tombstones": {name: [_in_json(key) for key in keys] for name, keys in trial.tombstones.items()},
        "quarantined": [
            {
                "record": str(each.origin),
                "rule": each.rule,
                "error": each.error,
                "key": _in_json(each.key),
                "value": _in_json(each.value),
            }
            for each in trial.quarantined
        ],
        "rules": {rule: dict(counts) for rule, counts in trial.rules.items()},
        "problems": list(problems),
    }


def _cell(value: Any) -> object:
    shown = _in_json(value)
    text = shown if isinstance(shown, str) else str(shown) if isinstance(shown, Mapping | list) else None
    if text is None:
        return shown
    return text if len(text) <= _SHOWN_CELL_LENGTH else text[: _SHOWN_CELL_LENGTH - 1] + "…"


def _in_json(value: Any) -> Any:
    """The value as JSON has it: bytes that are no UTF-8 become base64."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _in_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)

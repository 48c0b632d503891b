"""Judges rows by the rules that a pipeline declares (`expect`), and counts the rows that break them.

Every row is marked with the name of the first rule that it breaks, the gravest rules first, so that a row counts once.
A condition that is null is not met. Two kinds of rows are never judged, because they have no columns to judge: those of
tombstones, and records that could not be decoded. Rows are counted by the node that counts the batch (`watching.py`),
in the pass that there is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.definition import ERROR, POISON, RECORD, RULE, Budget, Output, Pipeline
from cordwood.pipelines.definition.errors import InvalidDefinition, RuleBroken
from cordwood.pipelines.definition.expectations import Else, Expectation
from cordwood.pipelines.rows.watching import Values, Watched, count_if_it_holds, counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

RuleCounts = Mapping[str, Mapping[str, int]]
"""By rule: {"quarantined": records} or {"dropped": rows}."""

_OUTCOMES: Final = {Else.FAIL: "quarantined", Else.QUARANTINE: "quarantined", Else.DROP: "dropped"}
"""A requeue sets aside what fails a batch."""
_SHOWN: Final = 3
_SHOWN_ROW_LENGTH: Final = 200


def outcomes(rules: Mapping[str, Expectation], broken: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """The counts by rule, without rules that no row breaks."""
    return {name: {_OUTCOMES[rules[name].else_]: count} for name, count in broken.items() if count}


def added(one: RuleCounts, two: RuleCounts) -> dict[str, dict[str, int]]:
    """Two counts by rule, together."""
    total = {name: dict(each) for name, each in one.items()}
    for name, each in two.items():
        for outcome, count in each.items():
            known = total.setdefault(name, {})
            known[outcome] = known.get(outcome, 0) + count
    return total


def marked(rows: "DataFrame", declared: str, rules: Sequence[Expectation], spared: Sequence[str]) -> "DataFrame":
    """The rows with `_rule`: the name of the first rule that a row breaks. `declared` says whose rows they are. Rows
    that meet one of the conditions `spared` are not judged."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    spare = [f"WHEN {condition} THEN NULL" for condition in spared]
    judge = [f"WHEN NOT coalesce((\n{rule.condition}\n), false) THEN {_literal(rule.name)}" for rule in rules]
    try:
        return rows.withColumn(RULE, F.expr(f"CASE {' '.join([*spare, *judge])} END"))
    except (AnalysisException, ParseException):
        check_conditions(rows, declared, rules)
        raise


def counted_by_rule(rows: "DataFrame", name: str, rules: Sequence[Expectation], failed: str = ERROR) -> "DataFrame":
    """`counted`, and with it how many of the marked rows break each rule."""
    return counted(rows, name, failed, Values(RULE, len(rules)) if rules else None)


def broken_in(rows: "DataFrame") -> dict[str, int]:
    """The rows that break each rule, by a job of its own."""
    from pyspark.sql import functions as F

    return {row[RULE]: row["count"] for row in rows.where(F.col(RULE).isNotNull()).groupBy(RULE).count().collect()}


def error_of(rules: Sequence[Expectation]) -> "Column":
    """The error of a row whose record goes to quarantine for the rule that it breaks; else null."""
    from pyspark.sql import functions as F

    told = [f"WHEN {_literal(rule.name)} THEN {_literal(rule.error)}" for rule in rules if sets_aside(rule)]
    return F.expr(f"CASE {RULE} {' '.join(told)} END") if told else F.lit(None).cast("string")


def sets_aside(rule: Expectation) -> bool:
    return rule.else_ is Else.QUARANTINE


@dataclass
class JudgedOutputs:
    """The rows of a batch's outputs, by output, judged by the rules of each."""

    pipeline: Pipeline
    sets_aside: bool = False
    """Rows that would fail the batch go to quarantine where they can: a requeue goes on with the other records."""
    count: bool = True
    _marked: "dict[str, DataFrame]" = field(default_factory=dict)

    def passing(self, outputs: "Mapping[str, DataFrame]") -> "dict[str, DataFrame]":
        """The rows that break no rule."""
        return {name: self._passing(name, rows) for name, rows in outputs.items()}

    def broken(self, watched: Watched) -> dict[str, int]:
        """The rows that break each rule. Rows whose count does not hold are counted by a job."""
        total: dict[str, int] = {}
        for name, rows in self._marked.items():
            count = count_if_it_holds(watched, f"output {name}")
            found = broken_in(rows) if count is None else count.by_value
            for rule, more in found.items():
                total[rule] = total.get(rule, 0) + more
        return total

    def failures(self, found: Mapping[str, int]) -> "list[DataFrame]":
        """(`_record`, `error`, `rule`) of the rows whose records go to quarantine."""
        from pyspark.sql import functions as F

        failed = []
        for name, rows in self._marked.items():
            rules = self._rules(name, rows)
            names = [rule.name for rule in rules if rule.else_ is Else.QUARANTINE and rule.name in found]
            if names:
                broken = rows.where(F.col(RULE).isin(names))
                failed.append(broken.select(RECORD, error_of(rules).alias("error"), F.col(RULE).alias("rule")))
        return failed

    def check(self, found: Mapping[str, int], batch_id: int) -> None:
        """Raises RuleBroken if a row breaks a rule that fails the batch."""
        for name, rows in self._marked.items():
            for rule in self._rules(name, rows):
                if rule.else_ is Else.FAIL and rule.name in found:
                    shown = shown_rows(rows, rule)
                    raise rule_broken(self.pipeline, str(self.pipeline.outputs[name]), rule, found, batch_id, shown)

    def _passing(self, name: str, rows: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        output = self.pipeline.outputs[name]
        if not output.expect:
            return rows
        self._marked[name] = judged = _marked_output(rows, output)
        if self.count:
            judged = counted_by_rule(judged, f"output {name}", output.expect, RULE)
        return judged.where(F.col(RULE).isNull()).drop(RULE)

    def _rules(self, name: str, rows: "DataFrame") -> list[Expectation]:
        rules = self.pipeline.outputs[name].expect
        if not self.sets_aside or RECORD not in rows.columns:
            return list(rules)
        return [_lenient(rule) for rule in rules]


def forgiving(pipeline: Pipeline, records: int) -> Pipeline:
    """The pipeline, in which as many poison records are allowed, and no rule of an input fails a batch."""
    inputs = {
        name: replace(each, expect=tuple(_lenient(rule) for rule in each.expect))
        for name, each in pipeline.inputs.items()
    }
    return replace(pipeline, inputs=inputs, budget=Budget(rows=records))


def _lenient(rule: Expectation) -> Expectation:
    """The rule, with quarantine in the place of a batch that fails."""
    return replace(rule, else_=Else.QUARANTINE) if rule.else_ is Else.FAIL else rule


def rule_broken(
    pipeline: Pipeline,
    declared: str,
    rule: Expectation,
    found: Mapping[str, int],
    batch_id: int,
    shown: Sequence[str],
) -> RuleBroken:
    count = found[rule.name]
    rows = "1 row" if count == 1 else f"{count:,} rows"
    verb = "breaks" if count == 1 else "break"
    what = rule.error.removeprefix("breaks")
    examples = f": {', '.join(shown)}" if shown else ""
    return RuleBroken(
        f"{pipeline.name}: {rows} of batch {batch_id} {verb}{what} ({declared}, {rule.site}){examples}; nothing of the "
        "batch was written",
        "mend the data or the function, or let the rule drop such rows or set them aside with else_=, and run it again",
    )


def shown_rows(rows: "DataFrame", rule: Expectation) -> list[str]:
    """A few of the rows that break a rule: the addresses of their records, or the rows themselves."""
    from pyspark.sql import functions as F

    found = rows.where(F.col(RULE) == F.lit(rule.name))
    if RECORD in rows.columns:
        # Rows that came from no record have no address.
        addresses = found.where(f"{RECORD} is not null").select(
            f"{RECORD}.topic", f"{RECORD}.partition", f"{RECORD}.offset"
        )
        places = addresses.distinct().orderBy("topic", "partition", "offset").limit(_SHOWN).collect()
        if places:
            return [f"{row['topic']}/{row['partition']}@{row['offset']}" for row in places]
    columns = [name for name in found.columns if name not in (RULE, RECORD, ERROR, POISON)]
    texts = found.select(F.to_json(F.struct(*(F.col(_quoted(name)) for name in columns))).alias("row"))
    return [str(row["row"])[:_SHOWN_ROW_LENGTH] for row in texts.limit(_SHOWN).collect()]


def raising(rows: "DataFrame", rules: Sequence[Expectation]) -> "DataFrame":
    """Marked rows without those that a rule drops, for queries that have no quarantine: a row that breaks another rule
    fails the query."""
    from pyspark.sql import functions as F

    if not rules:
        return rows
    told = F.lit(None).cast("string")
    for rule in rules:
        if rule.else_ is not Else.DROP:
            told = F.when(F.col(RULE) == F.lit(rule.name), F.lit(f"a row {rule.error}")).otherwise(told)
    # One condition: of two, Spark may apply the one first that leaves out the rows for which the other would fail.
    passes = F.when(told.isNotNull(), F.raise_error(told).cast("boolean")).otherwise(F.col(RULE).isNull())
    return rows.where(passes).drop(RULE)


def passing_or_raising(rows: "DataFrame", output: Output) -> "DataFrame":
    """`raising` for the rows of an output."""
    return raising(_marked_output(rows, output), output.expect) if output.expect else rows


def _marked_output(rows: "DataFrame", output: Output) -> "DataFrame":
    _check_record(rows, output)
    # A row without a record, from an outer join for example, is not made from a tombstone.
    spared = [f"coalesce({RECORD}.tombstone, false)"] if RECORD in rows.columns else []
    return marked(rows, str(output), output.expect, spared)


# Before the first batch


def check_output(rows: "DataFrame", output: Output) -> None:
    """Raises InvalidDefinition if rows of these columns cannot be judged by the output's rules."""
    _check_record(rows, output)
    check_conditions(rows, str(output), output.expect)


def check_conditions(rows: "DataFrame", declared: str, rules: Sequence[Expectation]) -> None:
    from pyspark.errors import AnalysisException, ParseException

    if not rules:
        return
    nothing = rows.sparkSession.createDataFrame([], _plain(rows))
    for rule in rules:
        said = f"{declared}: the expectation {rule.condition!r}"
        try:
            judged = nothing.where(rule.condition)
        except ParseException as failure:
            raise InvalidDefinition(f"{said} is no SQL condition: {_reason(failure)}", rule.site) from failure
        except AnalysisException as failure:
            raise InvalidDefinition(f"{said} {_misfit(failure)}", rule.site, _hint(failure, nothing)) from failure
        if not judged._jdf.queryExecution().analyzed().deterministic():
            hint = "a condition over the row's columns, which is the same whenever it is asked"
            raise InvalidDefinition(f"{said} is not the same for the same row", rule.site, hint)


def _check_record(rows: "DataFrame", output: Output) -> None:
    rule = next((each for each in output.expect if each.else_ is Else.QUARANTINE), None)
    if rule is not None and RECORD not in rows.columns:
        raise InvalidDefinition(
            f"{output}: the rule {rule.name} sets records aside, and its rows have no column {RECORD}, which says "
            "which record that is",
            rule.site,
            f"keep {RECORD} in the select, or let the rule drop rows or fail the batch: else_='drop' or 'fail'",
        )


def _plain(rows: "DataFrame") -> "StructType":
    from pyspark.sql.types import StructType

    return StructType([each for each in rows.schema if each.name not in (ERROR, POISON, RULE)])


def _misfit(failure: Any) -> str:
    parameters = failure.getMessageParameters() or {}
    condition = failure.getCondition() or ""
    if condition.startswith("UNRESOLVED_COLUMN"):
        return f"names {parameters['objectName'].strip('`')}, which is no column there"
    if condition == "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN":
        kind = next((text for name, text in parameters.items() if name in ("type", "actualType")), "a value")
        kind = kind.strip('"').lower()
        return f"is {kind}, neither true nor false"
    return f"is no condition on a row: {_reason(failure)}"


def _hint(failure: Any, rows: "DataFrame") -> str:
    if (failure.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        return f"there are {', '.join(name for name in rows.columns if name != RECORD)}"
    return ""


def _reason(failure: Exception) -> str:
    line = next((line.strip() for line in str(failure).splitlines() if line.strip()), type(failure).__name__)
    if line.startswith("["):
        line = line.partition("] ")[2] or line
    return line.partition(" SQLSTATE:")[0].rstrip(".")


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

"""The definition of a pipeline: name, version, inputs, a function from DataFrames to DataFrames, outputs, settings.

Everything here is a value that was checked when it was made. Nothing here imports Spark: a definition can be read,
listed and tested without it. Errors name the file and the line of the faulty declaration.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from cordwood.model.quantities import duration_ms
from cordwood.pipelines.definition.errors import InvalidDefinition, Site, calling_site
from cordwood.pipelines.definition.expectations import Else, Expectation, expectations
from cordwood.pipelines.definition.names import MAX_NAME_LENGTH, NAME
from cordwood.pipelines.definition.record_formats import Format, Json, ParsedBy, Raw, Text
from cordwood.pipelines.definition.replication import UNSAID, Replication
from cordwood.pipelines.definition.starting import EXAMPLES, starting_options
from cordwood.pipelines.definition.table_output import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD: Final = "_record"
"""The column that says which record a row was made from."""
ERROR: Final = "_error"
POISON: Final = "_poison"
RULE: Final = "_rule"
"""The column with the name of the rule that a row breaks."""

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_INTERVAL = re.compile(r"(interval\s+)?(\d+\s+(microsecond|millisecond|second|minute|hour|day|week)s?(\s+|$))+", re.I)
"""The intervals that Spark can read. Spark itself would refuse others only when the query starts."""

Function = Callable[..., "DataFrame | Mapping[str, DataFrame]"]


class OutputMode(StrEnum):
    """Spark's output modes for stateful pipelines: rows once they are final, or at every change."""

    APPEND = "append"
    UPDATE = "update"


@dataclass(frozen=True)
class Topic:
    """A topic to read from or to write to."""

    name: str
    key: Format | str | None
    value: Format | None
    replayable: bool
    site: Site = field(compare=False)
    writer: str | None = None
    """The pipeline whose output an input is: its live edition decides which topic is read."""
    left: tuple[str, ...] = ()
    """Topics of the same output that may have been read before this one: quarantined records name them."""
    replication: Replication = UNSAID
    """The copies of an output, where the definition says how many."""
    expect: tuple[Expectation, ...] = ()
    """The rules that rows are judged by, in this order."""

    def __str__(self) -> str:
        return f"topic {self.name}"


Output = Topic | Table


@dataclass(frozen=True)
class Budget:
    """How many poison records a batch may have: `rows`, or `share` of its records if that is more."""

    rows: int = 0
    share: float = 0.0

    def allowed(self, rows_in: int) -> int:
        # The decimal as written: in binary 0.29 is a little less, and would allow only 28 of a hundred records.
        return max(self.rows, int(Decimal(str(self.share)) * rows_in))

    def __str__(self) -> str:
        share = f" or {self.share:.2%} of a batch" if self.share else ""
        return f"{self.rows} {'record' if self.rows == 1 else 'records'}{share}"


@dataclass(frozen=True)
class Settings:
    """How a pipeline runs. Only `stateful` and `output_mode` change what it computes."""

    starting: str = "earliest"
    trigger: str = "1 second"
    max_rows_per_batch: int = 500_000
    stateful: bool = False
    output_mode: OutputMode = OutputMode.APPEND
    source_options: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    replication: Replication = UNSAID
    """The copies of topics that the pipeline makes, unless one says for itself."""
    batch_deadline_ms: int = 600_000
    every_ms: int | None = None
    """The interval at which a process that serves it reads all that there is; None: it reads all the time."""

    @property
    def fails_on_data_loss(self) -> bool:
        options = {name.lower(): str(value).lower() for name, value in self.source_options.items()}
        return options.get("failondataloss", "true") != "false"


@dataclass(frozen=True)
class Pipeline:
    """A pipeline. Calling it calls its function: `orders(a_dataframe)` tests it without a broker."""

    name: str
    version: int
    function: Function
    inputs: Mapping[str, Topic]
    outputs: Mapping[str, Output]
    budget: Budget
    settings: Settings
    site: Site = field(compare=False)

    def __call__(self, *inputs: "DataFrame", **named: "DataFrame") -> "DataFrame | Mapping[str, DataFrame]":
        return self.function(*inputs, **named)

    @property
    def quarantine_topic(self) -> str:
        return f"{self.name}.quarantine"

    @property
    def tables(self) -> dict[str, Table]:
        return {name: output for name, output in self.outputs.items() if isinstance(output, Table)}

    @property
    def topics(self) -> dict[str, Topic]:
        return {name: output for name, output in self.outputs.items() if isinstance(output, Topic)}

    @property
    def rules(self) -> dict[str, Expectation]:
        """The rules of all inputs and outputs, by name."""
        declared = (*self.inputs.values(), *self.outputs.values())
        return {rule.name: rule for each in declared for rule in each.expect}


def topic(
    name: str,
    *,
    key: Format | str | None = None,
    value: Format | None = None,
    replayable: bool = True,
    replicas: int | None = None,
    min_insync: int | None = None,
    expect: Expectation | Sequence[Expectation] = (),
) -> Topic:
    """A topic. As an input, `key` and `value` say how bytes become columns; the default is bytes as they are.

    As an output, `key` names the column that becomes the records' key, and all columns become the value: a JSON object,
    or with `value=raw()` or `text()` the column `value` alone. With `replayable=False` a replay writes nothing to the
    topic. If the pipeline makes the topic, it has `replicas` copies, of which `min_insync` have to be in sync for a
    write; the default are those of the widest input. `expect` are the rules that its rows must meet.
    """
    site = calling_site()
    if not isinstance(name, str) or not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidDefinition(
            f"{name!r} cannot be a topic's name", site, "letters, digits, dots, dashes, underscores"
        )
    for format_ in (key, value):
        if format_ is not None and not isinstance(format_, Raw | Text | Json | ParsedBy | str):
            raise InvalidDefinition(
                f"topic {name}: {format_!r} is no format", site, "raw(), text(), json(…), parsed_by(…)"
            )
    if isinstance(value, str):
        raise InvalidDefinition(f"topic {name}: value={value!r} is no format", site, "raw(), text(), json(…)")
    copies = Replication.checked(f"topic {name}", replicas, min_insync, site)
    rules = expectations(expect, f"topic {name}", site)
    return Topic(name, key, value, replayable, site, replication=copies, expect=rules)


def output(
    pipeline: str,
    name: str,
    *,
    key: Format | str | None = None,
    value: Format | None = None,
    expect: Expectation | Sequence[Expectation] = (),
) -> Topic:
    """An output topic of another pipeline as an input: `output("enrich", "enriched", value=json(…))`.

    `name` is the topic as the other pipeline declares it. The reader follows swaps and rollbacks of the other pipeline
    from topic to topic, at offsets at which the output of each record is read once.
    """
    if not isinstance(pipeline, str) or not NAME.fullmatch(pipeline):
        raise InvalidDefinition(
            f"{pipeline!r} cannot be a pipeline's name", calling_site(), 'output("enrich", "topic")'
        )
    return replace(topic(name, key=key, value=value, expect=expect), writer=pipeline)


def budget(rows: int = 0, share: float = 0.0) -> Budget:
    """How many poison records a batch may have before the pipeline stops: `rows`, or `share` of its records if that is
    more."""
    if rows < 0 or not 0 <= share <= 1:
        raise InvalidDefinition(f"budget(rows={rows}, share={share}): rows >= 0, share from 0 to 1", calling_site())
    return Budget(rows, share)


def pipeline(
    name: str | None = None,
    *,
    version: int,
    inputs: Topic | Mapping[str, Topic],
    outputs: Output | Mapping[str, Output],
    quarantine: Budget | None = None,
    starting: str = "earliest",
    trigger: str = "1 second",
    max_rows_per_batch: int = 500_000,
    stateful: bool = False,
    output_mode: str = "append",
    source_options: Mapping[str, str] | None = None,
    spark: Mapping[str, str] | None = None,
    replicas: int | None = None,
    min_insync: int | None = None,
    every: str | None = None,
    batch_deadline: str = "10m",
) -> Callable[[Function], Pipeline]:
    """Makes a function a pipeline, named after the function unless `name` is given.

    The function has a parameter for each input and returns a DataFrame for each output: one, or a mapping by the names
    in `outputs`. It is called for every batch, with that batch's rows. With `stateful=True` it is called once, with
    streaming DataFrames: for windows, joins of streams and whatever else needs Spark's state. `replicas` and
    `min_insync` are the copies of topics that the pipeline makes, its quarantine included, unless a topic says for
    itself. With `every="1h"`, `cordwood pipeline serve` has it read all that there is once an hour, instead of all the
    time. A batch that takes longer than `batch_deadline` is cancelled, and counts as a failure.
    """
    site = calling_site()

    def declare(function: Function) -> Pipeline:
        wanted = name if name is not None else function.__name__.replace("_", "-")
        if not NAME.fullmatch(wanted) or len(wanted) > MAX_NAME_LENGTH:
            raise InvalidDefinition(
                f"{wanted!r} cannot be a pipeline's name", site, "letters, digits, dashes, underscores"
            )
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise InvalidDefinition(f"{wanted}: version={version!r}", site, "a whole number from 1 on")
        try:
            starting_options(starting)
        except ValueError as error:
            raise InvalidDefinition(f"{wanted}: starting: {error}", site, EXAMPLES) from error
        settings = Settings(
            starting=starting,
            trigger=trigger,
            max_rows_per_batch=max_rows_per_batch,
            stateful=stateful,
            output_mode=_output_mode(wanted, output_mode, stateful, site),
            source_options=dict(source_options or {}),
            spark=dict(spark or {}),
            replication=Replication.checked(wanted, replicas, min_insync, site),
            every_ms=None if every is None else _duration_ms(wanted, "every", every, site),
            batch_deadline_ms=_duration_ms(wanted, "batch_deadline", batch_deadline, site),
        )
        begins = next((name for name in settings.source_options if name.lower().startswith("starting")), None)
        if begins is not None:
            hint = "starting=… says where the first edition begins, and --from where a replay does"
            raise InvalidDefinition(f"{wanted}: {begins} is no option for its source", site, hint)
        if max_rows_per_batch < 1:
            raise InvalidDefinition(f"{wanted}: max_rows_per_batch={max_rows_per_batch}", site, "at least 1")
        if not _INTERVAL.fullmatch(trigger.strip()):
            raise InvalidDefinition(f"{wanted}: trigger={trigger!r}", site, "'500 milliseconds', '1 minute'")
        made = Pipeline(
            name=wanted,
            version=version,
            function=function,
            inputs=_inputs(wanted, inputs, function, site),
            outputs=_outputs(wanted, outputs, site),
            budget=quarantine or Budget(),
            settings=settings,
            site=site,
        )
        _check_names(made)
        _check_rules(made)
        _check_stateful(made)
        return made

    return declare


def _inputs(name: str, inputs: Topic | Mapping[str, Topic], function: Function, site: Site) -> dict[str, Topic]:
    parameters = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is inspect.Parameter.empty
    ]
    if isinstance(inputs, Topic):
        if len(parameters) != 1:
            raise InvalidDefinition(
                f"{name}: one input, but the function takes {len(parameters)}", _site_of(function, site)
            )
        inputs = {parameters[0]: inputs}
    if not isinstance(inputs, Mapping) or not inputs or not all(isinstance(each, Topic) for each in inputs.values()):
        raise InvalidDefinition(f"{name}: inputs are topics", site, 'inputs={"orders": topic("orders", value=json(…))}')
    if set(parameters) != set(inputs):
        hint = "an input and the function's parameter for it have the same name"
        there, wanted = ", ".join(sorted(parameters)), ", ".join(sorted(inputs))
        raise InvalidDefinition(
            f"{name}: the function takes {there or 'nothing'}, the inputs are {wanted}", _site_of(function, site), hint
        )
    for each in inputs.values():
        if each.replication != UNSAID:
            hint = f"`cordwood cluster reassign {each.name} --replication-factor N` gives it more"
            raise InvalidDefinition(f"{name}: the input {each.name} is not made here", each.site, hint)
        if isinstance(each.key, str):
            raise InvalidDefinition(f"{name}: the input {each.name} has key={each.key!r}", each.site, "key=text(), say")
        for format_ in (each.key, each.value):
            if isinstance(format_, Json) and not format_.schema:
                raise InvalidDefinition(f"{name}: json() of the input {each.name} needs a schema", each.site)
    return {parameter: replace(each, value=each.value or Raw()) for parameter, each in inputs.items()}


def _outputs(name: str, outputs: Output | Mapping[str, Output], site: Site) -> dict[str, Output]:
    if isinstance(outputs, Topic | Table):
        outputs = {outputs.name: outputs}
    if not isinstance(outputs, Mapping) or not outputs:
        raise InvalidDefinition(f"{name}: no outputs", site, "outputs=table(…), topic(…), or a mapping of several")
    for each in outputs.values():
        if not isinstance(each, Topic | Table):
            raise InvalidDefinition(f"{name}: {each!r} is no output", site, "topic(…) or table(…)")
        if isinstance(each, Topic) and each.key is not None and not isinstance(each.key, str):
            hint = "the column that becomes the key: key='id'"
            raise InvalidDefinition(f"{name}: the output {each.name} has a format as its key", each.site, hint)
        if isinstance(each, Topic) and isinstance(each.value, ParsedBy):
            raise InvalidDefinition(
                f"{name}: parsed_by() reads, it does not write", each.site, "json(), text() or raw()"
            )
    return {
        key: replace(each, value=each.value or Json()) if isinstance(each, Topic) else each
        for key, each in outputs.items()
    }


def _check_names(made: Pipeline) -> None:
    read = {each.name for each in made.inputs.values()}
    if len(read) != len(made.inputs):
        raise InvalidDefinition(f"{made.name}: one topic is two inputs", made.site, "one input, used twice, does it")
    for kind, written in (("topic", made.topics), ("table", made.tables)):
        names = [each.name for each in written.values()]
        twice = next((each for each in names if names.count(each) > 1), None)
        if twice is not None:
            raise InvalidDefinition(f"{made.name}: two outputs write the {kind} {twice}", made.site)
    for each in made.topics.values():
        if each.name in read or each.name == made.quarantine_topic:
            raise InvalidDefinition(f"{made.name}: it would read what it writes to {each.name}", each.site)
    followed = next((each for each in made.topics.values() if each.writer is not None), None)
    if followed is not None:
        hint = f"topic({followed.name!r}) declares an output"
        raise InvalidDefinition(f"{made.name}: output() is for inputs", followed.site, hint)
    itself = next((each for each in made.inputs.values() if each.writer == made.name), None)
    if itself is not None:
        raise InvalidDefinition(f"{made.name}: it would read its own output {itself.name}", itself.site)
    if made.quarantine_topic in read:
        hint = f"`cordwood pipeline requeue {made.name}` sends them through again"
        raise InvalidDefinition(f"{made.name}: its own quarantine is no input", made.site, hint)


def _check_rules(made: Pipeline) -> None:
    """Refuses two rules with one name: rows are counted by the rule's name."""
    for each in (*made.inputs.values(), *made.outputs.values()):
        for rule in each.expect:
            if made.rules[rule.name] != rule:
                hint = f"{made.rules[rule.name].site} declares the other: name='…' tells them apart"
                raise InvalidDefinition(f"{made.name}: two rules with the name {rule.name}", rule.site, hint)


def _check_stateful(made: Pipeline) -> None:
    """Refuses outputs that are not replayable, a budget by share, and outputs whose rows go to quarantine: a record
    cannot be taken out of a state."""
    if not made.settings.stateful:
        return
    for output in made.outputs.values():
        for rule in output.expect:
            if rule.else_ is Else.QUARANTINE:
                hint = "else_='drop' or 'fail', or a rule of the input"
                raise InvalidDefinition(
                    f"{made.name}: {output}: the rule {rule.name} would take a record out of a state", rule.site, hint
                )
    for each in made.outputs.values():
        if not each.replayable:
            hint = "let another pipeline read this one's output, and write it"
            raise InvalidDefinition(
                f"{made.name}: a stateful pipeline's {each.name} must be replayable", each.site, hint
            )
    if made.budget.share:
        hint = "budget(rows=…)"
        raise InvalidDefinition(f"{made.name}: the budget of a stateful pipeline is a number of rows", made.site, hint)


def _duration_ms(name: str, setting: str, text: str, site: Site) -> int:
    try:
        found_ms = duration_ms(text)
    except (ValueError, AttributeError):
        found_ms = 0
    if found_ms < 1_000:
        raise InvalidDefinition(f"{name}: {setting}={text!r}", site, "'15m', '1h', '1d': a second or more")
    return found_ms


def _output_mode(name: str, text: str, stateful: bool, site: Site) -> OutputMode:
    if text not in list(OutputMode):
        raise InvalidDefinition(f"{name}: output_mode={text!r}", site, "append or update")
    if not stateful and text != OutputMode.APPEND:
        raise InvalidDefinition(f"{name}: output_mode is for stateful pipelines", site, "stateful=True")
    return OutputMode(text)


def _site_of(function: Callable[..., Any], otherwise: Site) -> Site:
    code = getattr(function, "__code__", None)
    return otherwise if code is None else Site(code.co_filename, code.co_firstlineno)

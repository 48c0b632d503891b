"""`cordwood pipeline compare`: the live outputs and those of a replay, side by side."""

import json
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cordwood.cli.pipeline.options import Directory, PipelineName, refusals
from cordwood.cli.terminal.connecting import ClientConfig, Servers, bootstrap_of
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import print_json, print_table, remark, say
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.cli.pipeline.compared_outputs import Compared
    from cordwood.client.bootstrap import Bootstrap
    from cordwood.pipelines.comparison.on_spark import Comparison
    from cordwood.pipelines.editions.editions import Edition, PipelineState


def compare_editions(
    name: PipelineName,
    edition: Annotated[
        str | None,
        typer.Option(
            "--edition",
            "-e",
            metavar="EDITION",
            help="This one; the newest beside the live one if not given.",
            show_default=False,
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", "-n", metavar="N", min=0, max=1000, help="Differences of each kind to show.")
    ] = 5,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 5 if anything differs.")] = False,
    directory: Directory = None,
    servers: Servers = None,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Compare the live tables and topics with those of a replay: counts, keys that differ, samples.

    Rows and records are matched by their key; without a key they are counted by content. The order of a topic's records
    is not compared. More than 200,000 rows are compared on Spark.
    """
    with refusals():
        from cordwood.pipelines.definition.errors import WrongState, shown_path
        from cordwood.pipelines.editions.project import Project

        bootstrap = bootstrap_of(servers, client_config)
        project = Project(directory)
        state = project.known(name)
        name = state.name
        live = state.live_edition()
        other = state.edition(edition) if edition is not None else state.fresh_edition()
        if other is None:
            raise WrongState(
                f"{name} has no edition beside the live one",
                f"`cordwood pipeline replay {shown_path(live.source_file)}` builds one",
            )
        together = project.sets.beside(name, other.name)
        judged = judge(state, live, other, bootstrap, samples)
    if not judged.found.outputs and not judged.found.unwritten:
        raise Failure(
            "NOTHING_TO_COMPARE",
            f"editions {live.name} and {other.name} of {name} have no output in common but those that they share",
            "an output is compared with the one of the same name, unless it is replayable=False",
        )
    if as_json:
        print_json(judged.as_json())
    else:
        judged.show()
        if together is not None:
            remark(f"{other.name} is one of a set, which a swap of any of them makes live: {together}")
    if exit_code and not judged.found.is_equal:
        raise typer.Exit(ExitCode.PROBLEM_FOUND)


class Judged(NamedTuple):
    """What two editions of a pipeline differ in."""

    pipeline: str
    live: "Edition"
    fresh: "Edition"
    found: "Compared"
    apart: tuple[int, int]
    """The records that only the live one has read, and only the fresh one, of topics that both read."""

    def as_json(self) -> dict[str, Any]:
        outputs, live = self.found.outputs, self.live
        return {
            "pipeline": self.pipeline,
            "live": live.name,
            "fresh": self.fresh.name,
            "equal": self.found.is_equal,
            "records_only_live_has_read": self.apart[0],
            "records_only_fresh_has_read": self.apart[1],
            "tables": [_as_json("table", each) for each in outputs if each.name in live.tables],
            "topics": [_as_json("topic", each) for each in outputs if each.name not in live.tables],
            "not_written_yet": self.found.unwritten,
        }

    def show(self) -> None:
        live, fresh = self.live, self.fresh
        known = f"edition {live.name} (version {live.version}, live)"
        say(f"{self.pipeline}: {known} and {fresh.name} (version {fresh.version})")
        _show_all(self.found)
        if any(self.apart):
            first, second = self.apart
            remark(f"They have not read the same: {live.name} {first:,} records more, {fresh.name} {second:,} more.")


def judge(state: "PipelineState", live: "Edition", fresh: "Edition", bootstrap: "Bootstrap", samples: int) -> Judged:
    from cordwood.cli.pipeline.compared_outputs import compared
    from cordwood.pipelines.editions.checkpoint import committed_position
    from cordwood.pipelines.editions.positions import lacking

    read, reads = (committed_position(state.checkpoint(each.name)) for each in (live, fresh))
    found = compared(state, live, fresh, bootstrap, samples)
    return Judged(state.name, live, fresh, found, (lacking(read, reads), lacking(reads, read)))


def _show_all(found: "Compared") -> None:
    for kind, each in zip(found.kinds, found.outputs, strict=True):
        _show(kind, each)
    for output in found.unwritten:
        say(f"{output}: one of them has not written it yet")


def _show(kind: str, found: "Comparison") -> None:
    what = "rows" if kind == "table" else "records"
    columns = [kind, f"live {what}", f"fresh {what}", "only live", "only fresh", "changed"]
    row = [found.name, found.live_rows, found.fresh_rows, found.only_live, found.only_fresh, found.changed]
    print_table(columns, [row])
    for which, names in (
        ("only in the live table", found.columns.only_live),
        ("only in the fresh table", found.columns.only_fresh),
        ("of another type", found.columns.of_other_type),
    ):
        if names:
            say(f"  columns {which}: {', '.join(names)}")
    if found.samples:
        cells = [
            [each["kind"], _text(each["key"]), _text(each.get("live")), _text(each.get("fresh"))]
            for each in found.samples
        ]
        print_table(["kind", "key", "live", "fresh"], cells)
    if found.is_equal:
        say("  no difference")


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _as_json(kind: str, found: "Comparison") -> dict[str, Any]:
    return {
        kind: found.name,
        "key": list(found.key),
        "equal": found.is_equal,
        "live_rows": found.live_rows,
        "fresh_rows": found.fresh_rows,
        "only_live": found.only_live,
        "only_fresh": found.only_fresh,
        "changed": found.changed,
        "columns_only_live": list(found.columns.only_live),
        "columns_only_fresh": list(found.columns.only_fresh),
        "columns_of_other_type": list(found.columns.of_other_type),
        "samples": list(found.samples),
    }

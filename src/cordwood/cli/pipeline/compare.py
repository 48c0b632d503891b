"""`cordwood pipeline compare`: the live tables and those of a replay, side by side."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cli.options import AsJson
from cordwood.cli.output import print_json, print_table, remark, say
from cordwood.cli.pipeline.options import Directory, PipelineName, refusals

if TYPE_CHECKING:
    from cordwood.pipelines.comparing import Comparison


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
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Compare the live tables with those of a replay: row counts, keys that differ, samples. Runs on Spark."""
    with refusals():
        from cordwood.cli.pipeline.quiet_spark import quiet_session
        from cordwood.pipelines.checkpoint import committed_position
        from cordwood.pipelines.comparing import compare
        from cordwood.pipelines.errors import WrongState, shown_path
        from cordwood.pipelines.positions import ahead, distance
        from cordwood.pipelines.project import Project
        from cordwood.pipelines.tables.reading import snapshot

        state = Project(directory).known(name)
        name = state.name
        live = state.live_edition()
        other = state.edition(edition) if edition is not None else state.fresh_edition()
        if other is None:
            raise WrongState(
                f"{name} has no edition beside the live one",
                f"`cordwood pipeline replay {shown_path(live.source_file)}` builds one",
            )
        positions = [committed_position(state.checkpoint(each.name)) for each in (live, other)]
        apart = distance(ahead(positions[0], positions[1])), distance(ahead(positions[1], positions[0]))
        found: list[Comparison] = []
        unwritten = []
        spark = None
        for table, facts in live.tables.items():
            if facts.shared or table not in other.tables:
                continue
            taken = [snapshot(state.table_directory(each, table), each.tables[table].format) for each in (live, other)]
            if taken[0] is None or taken[1] is None:
                unwritten.append(table)
                continue
            spark = spark or quiet_session(f"compare {name}", {})
            found.append(compare(spark, table, facts.key, taken[0], taken[1], samples))
    if as_json:
        print_json(
            {
                "pipeline": name,
                "live": live.name,
                "fresh": other.name,
                "records_only_live_has_read": apart[0],
                "records_only_fresh_has_read": apart[1],
                "tables": [_as_json(each) for each in found],
                "not_written_yet": unwritten,
            }
        )
        return
    say(f"{name}: edition {live.name} (version {live.version}, live) and {other.name} (version {other.version})")
    for each in found:
        _show(each)
    for table in unwritten:
        say(f"table {table}: one of them has not written it yet")
    if any(apart):
        remark(f"They have not read the same: {live.name} {apart[0]:,} records more, {other.name} {apart[1]:,} more.")


def _show(found: "Comparison") -> None:
    columns = ["table", "live rows", "fresh rows", "only live", "only fresh", "changed"]
    row = [found.table, found.live_rows, found.fresh_rows, found.only_live, found.only_fresh, found.changed]
    print_table(columns, [row])
    for what, names in (
        ("only in the live table", found.columns_only_live),
        ("only in the fresh table", found.columns_only_fresh),
        ("of another type", found.columns_of_other_type),
    ):
        if names:
            say(f"  columns {what}: {', '.join(names)}")
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


def _as_json(found: "Comparison") -> dict[str, Any]:
    return {
        "table": found.table,
        "key": list(found.key),
        "equal": found.is_equal,
        "live_rows": found.live_rows,
        "fresh_rows": found.fresh_rows,
        "only_live": found.only_live,
        "only_fresh": found.only_fresh,
        "changed": found.changed,
        "columns_only_live": list(found.columns_only_live),
        "columns_only_fresh": list(found.columns_only_fresh),
        "columns_of_other_type": list(found.columns_of_other_type),
        "samples": [dict(each) for each in found.samples],
    }

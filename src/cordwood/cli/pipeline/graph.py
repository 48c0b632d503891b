"""`cordwood pipeline graph`: who feeds whom."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.pipeline.options import Directory, refusals
from cordwood.cli.terminal.connecting import ClientConfig, Servers, bootstrap_of
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import print_json, remark, say
from cordwood.model.failure import ExitCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cordwood.cli.pipeline.drawn_graph import Flow, Graph, Node
    from cordwood.cli.pipeline.view import EditionView
    from cordwood.client.bootstrap import Bootstrap
    from cordwood.pipelines.definition.definition import Pipeline
    from cordwood.pipelines.definition.project_files import Edge, Fault
    from cordwood.pipelines.editions.editions import PipelineState
    from cordwood.pipelines.editions.project import Project


def pipeline_graph(
    files: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR",
            help="A directory with the files of pipelines; the definitions that live editions keep if not given.",
            show_default=False,
        ),
    ] = None,
    svg_file: Annotated[
        str | None, typer.Option("--svg", metavar="FILE", help="Draw it into this file, too.", show_default=False)
    ] = None,
    directory: Directory = None,
    servers: Servers = None,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show which pipeline feeds which: topics, tables, live editions, lag, rows a second, quarantine.

    Files are checked as one project: two writers of one output, inputs that are nowhere and cycles are told with file
    and line, and the exit code is 5. Nothing needs to have run, and no broker needs to answer.
    """
    with refusals():
        from cordwood.cli.pipeline.drawn_graph import svg, tree
        from cordwood.pipelines.definition.project_files import check_project, edges_between, load_project
        from cordwood.pipelines.editions.project import Project

        bootstrap = bootstrap_of(servers, client_config)
        project = Project(directory)
        if files is None:
            pipelines, faults = _kept(project)
        else:
            loaded = load_project(Path(files))
            pipelines, faults = dict(loaded.pipelines), list(loaded.faults)
        topics, silence = _topics(bootstrap)
        faults += check_project(pipelines.values(), topics=topics, elsewhere=_elsewhere(project))
        graph = _graph(project, pipelines, edges_between(pipelines.values()), faults, silence, bootstrap)
        if svg_file is not None:
            Path(svg_file).write_text(svg(graph), encoding="utf-8")
    if as_json:
        print_json(
            {
                "pipelines": [node.as_json() for _, node in sorted(graph.nodes.items())],
                "faults": [
                    {"pipelines": list(each.pipelines), "message": each.error.message, "hint": each.error.hint}
                    for each in faults
                ],
            }
        )
    else:
        for line in tree(graph):
            say(line)
        _remark_all(graph, faults, silence, svg_file)
        if not graph.nodes and not faults:
            where = files or str(project.directory)
            remark(f"No pipelines in {where}: `cordwood pipeline graph DIR` reads the files of a directory.")
    if faults:
        raise typer.Exit(ExitCode.PROBLEM_FOUND)


def _remark_all(graph: "Graph", faults: "Sequence[Fault]", silence: str | None, svg_file: str | None) -> None:
    for fault in faults:
        remark(f"error: {fault.error.message}")
        if fault.error.hint:
            remark(f"  hint: {fault.error.hint}")
    wrong = {fault.error.message for fault in faults}
    for name, node in sorted(graph.nodes.items()):
        for each in node.trouble:
            if each not in wrong:
                remark(f"{name}: {each}")
    if silence is not None:
        remark(f"Lags are not known, nor which topics there are: {silence}.")
    if svg_file is not None:
        remark(f"Drawn in {svg_file}")


def _kept(project: "Project") -> "tuple[dict[str, Pipeline], list[Fault]]":
    """The definitions that live editions keep."""
    from cordwood.pipelines.definition.errors import InvalidDefinition
    from cordwood.pipelines.definition.loading import load_pipeline
    from cordwood.pipelines.definition.project_files import Fault

    found, faults = {}, []
    for state in project.pipelines():
        if state.live() is None:
            continue
        edition = state.live_edition()
        try:
            found[state.name] = load_pipeline(
                state.definition(edition), state.name, beside=Path(edition.source_file).parent
            )
        except InvalidDefinition as error:
            faults.append(Fault((state.name,), error))
    return found, faults


def _elsewhere(project: "Project") -> dict[str, list[str]]:
    """The topics that live editions write, as they declare them."""
    return {state.name: list(state.live_edition().topics) for state in project.pipelines() if state.live() is not None}


def _topics(bootstrap: "Bootstrap") -> "tuple[Collection[str] | None, str | None]":
    """The topics that there are; else the reason why they are not known."""
    from cordwood.client.errors import ClientError, SecurityFailure
    from cordwood.pipelines.execution.topics import existing_topics

    try:
        return existing_topics(bootstrap), None
    except SecurityFailure as refused:
        return None, str(refused)
    except ClientError:
        return None, f"{bootstrap} does not answer"


def _graph(
    project: "Project",
    pipelines: "Mapping[str, Pipeline]",
    edges: "Sequence[Edge]",
    faults: "Sequence[Fault]",
    silence: str | None,
    bootstrap: "Bootstrap",
) -> "Graph":
    from cordwood.cli.pipeline.drawn_graph import Graph

    writers = {(edge.reader, edge.topic): edge.writer for edge in edges}
    return Graph(
        {
            name: _node(
                project,
                pipeline,
                {topic.name: writers.get((name, topic.name), "") for topic in pipeline.inputs.values()},
                [fault.error.message for fault in faults if name in fault.pipelines],
                None if silence is not None else bootstrap,
            )
            for name, pipeline in pipelines.items()
        }
    )


def _node(
    project: "Project",
    pipeline: "Pipeline",
    inputs: "Mapping[str, str]",
    trouble: list[str],
    bootstrap: "Bootstrap | None",
) -> "Node":
    from cordwood.cli.pipeline.drawn_graph import Node
    from cordwood.cli.pipeline.view import LagNow, editions_of

    topics = [topic.name for topic in pipeline.topics.values()]
    tables = [table.name for table in pipeline.tables.values()]
    state = project.state(pipeline.name)
    lags = None if bootstrap is None else LagNow(project, state, bootstrap)
    views = editions_of(state) if lags is None else editions_of(state, lags)
    live = next((view for view in views if view.role == "live"), None)
    if live is None:
        return Node(pipeline.name, inputs, topics, tables, trouble=trouble)
    last = live.progress.get("last_batch") or {}
    rows, duration_ms = last.get("rows_in"), last.get("duration_ms")
    lag_by_topic = {} if lags is None else lags.by_topic.get(live.edition.name, {})
    failed = [] if live.failure is None else [f"failed: {live.failure['message']}"]
    return Node(
        pipeline.name,
        inputs,
        topics,
        tables,
        live.edition.name,
        live.edition.version,
        live.is_running,
        live.lag,
        rows * 1000 / duration_ms if rows and duration_ms else None,
        live.progress.get("quarantined", 0),
        [*trouble, *failed, *(f"reads {each}" for each in live.abandoned)],
        _flows(state, live, lag_by_topic, pipeline, duration_ms),
        next(
            (view.edition.name for view in reversed(views) if view.role == "fresh" and view.together is not None), None
        ),
    )


def _flows(
    state: "PipelineState",
    live: "EditionView",
    lag: "Mapping[str, int]",
    pipeline: "Pipeline",
    duration_ms: int | None,
) -> "dict[str, Flow]":
    """What goes into the live edition by each of its inputs."""
    from cordwood.cli.pipeline.drawn_graph import Flow
    from cordwood.pipelines.editions.checkpoint import span_of_last_batch
    from cordwood.pipelines.editions.events import SET_ASIDE

    now = {each.output: each.topic for each in live.edition.followed}
    span = span_of_last_batch(state.checkpoint(live.edition.name)) if duration_ms else {}
    rate = {topic: rows * 1000 / duration_ms for topic, rows in span.items() if duration_ms}
    aside = live.progress.get(SET_ASIDE, {})
    flows = {}
    for name, topic in pipeline.inputs.items():
        read = now.get(topic.name, topic.name)
        flows[topic.name] = Flow(lag.get(read), rate.get(read), aside.get(name, 0))
    return flows

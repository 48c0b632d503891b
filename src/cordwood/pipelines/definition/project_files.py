"""The definitions of a directory as one project: who feeds whom, and what is wrong with it before anything runs.

    definitions = load_project(Path("pipelines"))
    faults = check_project(definitions.pipelines.values(), topics=topics_of_the_brokers)

A wrong file does not hide the others: it is a fault beside those that `check_project` finds, and all others are there.
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cordwood.pipelines.definition.definition import Output, Pipeline, Topic
from cordwood.pipelines.definition.errors import InvalidDefinition, NotFound, Site, shown_path
from cordwood.pipelines.definition.loading import load_pipelines
from cordwood.pipelines.definition.table_output import Table


class Fault(NamedTuple):
    """A mistake in a project. The error begins with file and line."""

    pipelines: tuple[str, ...]
    """The pipelines that cannot run because of it; none for a file that cannot be loaded."""
    error: InvalidDefinition


@dataclass(frozen=True)
class Definitions:
    """The pipelines that the files of a directory declare."""

    pipelines: Mapping[str, Pipeline]
    faults: Sequence[Fault]
    """Files that cannot be loaded, and second pipelines of one name."""


class Edge(NamedTuple):
    """One pipeline reads the output topic of another one."""

    writer: str
    topic: str
    """The topic as the writer declares it."""
    reader: str
    follows: bool
    """False if the reader names the topic, and not the output: it does not follow a swap."""
    site: Site


def load_project(directory: Path) -> Definitions:
    """Loads the files of a directory that declare pipelines. Other files, among them tests and programs, are not run;
    folders in it are not looked into."""
    if not directory.is_dir():
        raise NotFound(f"{shown_path(directory)} is no directory", "a directory with the files of pipelines")
    found: dict[str, Pipeline] = {}
    faults = []
    for path in sorted(directory.glob("*.py")):
        try:
            declared = load_pipelines(path) if _declares_pipelines(path) else {}
        except InvalidDefinition as error:
            faults.append(Fault((), error))
            continue
        for name, pipeline in declared.items():
            if name in found:
                there = found[name].site
                message = f"a second pipeline with the name {name}: the first is at {there}"
                faults.append(Fault((), InvalidDefinition(message, pipeline.site, "name one of them otherwise")))
            else:
                found[name] = pipeline
    return Definitions(found, faults)


def check_project(
    pipelines: Iterable[Pipeline],
    *,
    topics: Collection[str] | None = None,
    elsewhere: Mapping[str, Collection[str]] | None = None,
) -> list[Fault]:
    """The mistakes that no single definition shows: two writers of one output, inputs that neither exist nor are an
    output of the project, and cycles.

    `topics` are those that exist; None: not known, and inputs that are named as topics are not judged. `elsewhere` has
    the declared topics of pipelines that run without a file in the project.
    """
    every = {each.name: each for each in pipelines}
    return [
        *_second_writers(every.values()),
        *_missing_inputs(every, topics, elsewhere or {}),
        *_cycles(every.values()),
    ]


def edges_between(pipelines: Iterable[Pipeline]) -> list[Edge]:
    """The edges of a project, by reader and the order of its inputs."""
    every = list(pipelines)
    declared = {(each.name, topic.name) for each in every for topic in each.topics.values()}
    writers = {topic: writer for writer, topic in declared}
    found = []
    for reader in every:
        for topic in reader.inputs.values():
            follows = topic.writer is not None
            writer = topic.writer if topic.writer is not None else writers.get(topic.name)
            if writer is not None and (writer, topic.name) in declared:
                found.append(Edge(writer, topic.name, reader.name, follows, topic.site))
    return found


def _declares_pipelines(path: Path) -> bool:
    """True for a file that has a function decorated with `pipeline(…)`, and for one that no Python can read but that
    speaks of pipelines."""
    source = path.read_bytes()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return b"cordwood.pipelines" in source
    names = {"pipeline"} | {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cordwood.pipelines")
        for alias in node.names
        if alias.name == "pipeline" and alias.asname is not None
    }
    return any(
        isinstance(decorator, ast.Call)
        and (decorator.func.id if isinstance(decorator.func, ast.Name) else getattr(decorator.func, "attr", ""))
        in names
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
    )


def _second_writers(pipelines: Iterable[Pipeline]) -> Iterator[Fault]:
    first: dict[tuple[str, str], tuple[str, Site]] = {}
    quarantines: list[tuple[str, Output]] = []
    every = list(pipelines)
    for pipeline in every:
        for output in pipeline.outputs.values():
            kind = "table" if isinstance(output, Table) else "topic"
            writer, site = first.setdefault((kind, output.name), (pipeline.name, output.site))
            if writer != pipeline.name:
                yield Fault(
                    (writer, pipeline.name),
                    InvalidDefinition(
                        f"{pipeline.name} writes the {kind} {output.name}, and {writer} does at {site}",
                        output.site,
                        "two writers of one output would mix their rows: name one of the outputs otherwise",
                    ),
                )
            quarantines.append((pipeline.name, output))
    kept = {pipeline.quarantine_topic: pipeline for pipeline in every}
    for name, output in quarantines:
        owner = kept.get(output.name)
        if isinstance(output, Topic) and owner is not None and owner.name != name:
            message = f"{name} writes the topic {output.name}, which is the quarantine of {owner.name}"
            yield Fault((name, owner.name), InvalidDefinition(message, output.site, "name the output otherwise"))


def _missing_inputs(
    pipelines: Mapping[str, Pipeline], topics: Collection[str] | None, elsewhere: Mapping[str, Collection[str]]
) -> Iterator[Fault]:
    written = {name: [topic.name for topic in each.topics.values()] for name, each in pipelines.items()}
    every = {topic for each in written.values() for topic in each}
    declared = {**elsewhere, **written}
    for pipeline in pipelines.values():
        for topic in pipeline.inputs.values():
            error = None
            if topic.writer is None:
                if topics is not None and topic.name not in topics and topic.name not in every:
                    error = InvalidDefinition(
                        f"{pipeline.name} reads the topic {topic.name}, which does not exist, and no pipeline of the "
                        "project writes it",
                        topic.site,
                        f"`cordwood topic create {topic.name}` creates it",
                    )
            elif topic.writer not in declared:
                there = ", ".join(sorted(declared))
                error = InvalidDefinition(
                    f"{pipeline.name} reads {topic.name} of {topic.writer}, and there is no such pipeline",
                    topic.site,
                    f"there are {there}",
                )
            elif topic.name not in declared[topic.writer]:
                there = ", ".join(sorted(declared[topic.writer])) or "no topic"
                error = InvalidDefinition(
                    f"{pipeline.name} reads {topic.name} of {topic.writer}, which writes {there}",
                    topic.site,
                    "name the topic as it is declared there",
                )
            if error is not None:
                yield Fault((pipeline.name,), error)


def _cycles(pipelines: Iterable[Pipeline]) -> Iterator[Fault]:
    """One fault for each edge that closes a cycle."""
    feeds: dict[str, list[Edge]] = {}
    for edge in edges_between(pipelines):
        feeds.setdefault(edge.writer, []).append(edge)
    done: set[str] = set()
    way: list[str] = []

    def follow(writer: str) -> Iterator[Fault]:
        way.append(writer)
        for edge in feeds.get(writer, []):
            if edge.reader in way:
                circle = way[way.index(edge.reader) :]
                through = " → ".join([*circle, edge.reader])
                message = f"{edge.reader} reads {edge.topic}, and feeds it itself: {through}"
                hint = "a pipeline reads no topic that is made from its own output"
                yield Fault(tuple(circle), InvalidDefinition(message, edge.site, hint))
            elif edge.reader not in done:
                yield from follow(edge.reader)
        done.add(way.pop())

    for name in sorted(feeds):
        if name not in done:
            yield from follow(name)

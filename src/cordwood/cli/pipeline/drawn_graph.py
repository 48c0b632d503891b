"""The graph of a project as values, as a tree of text, and as an SVG that needs nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import escape

from cordwood.model.quantities import count_in_words

_WIDTH: Final = 250
_ROW: Final = 84
_GAP: Final = 110
_MARGIN: Final = 24
_HEIGHT: Final = 60


class Flow(NamedTuple):
    """What goes along an edge, into one input of a pipeline."""

    lag: int | None = None
    rows_a_second: float | None = None
    """In the last batch, by offsets."""
    quarantined: int = 0
    """Records of this input in quarantine: they could not be decoded, broke a rule, or the function failed on them."""

    def pace(self) -> list[str]:
        lag = [] if self.lag is None else [f"lag {self.lag:,}"]
        return lag if self.rows_a_second is None else [*lag, f"{self.rows_a_second:,.0f} rows/s"]

    def aside(self) -> list[str]:
        return [f"{self.quarantined:,} in quarantine"] if self.quarantined else []


_NOTHING: Final = Flow()


@dataclass(frozen=True)
class Node:
    """A pipeline of the graph, with what is known of its live edition."""

    name: str
    inputs: Mapping[str, str]
    """The pipeline that writes each input topic; the empty text for a topic that comes from elsewhere."""
    topics: Sequence[str]
    tables: Sequence[str]
    edition: str | None = None
    """None: it has not run yet."""
    version: int | None = None
    is_running: bool = False
    lag: int | None = None
    rows_a_second: float | None = None
    quarantined: int = 0
    trouble: Sequence[str] = ()
    """What is wrong with it, or what it waits for."""
    flows: Mapping[str, Flow] = field(default_factory=dict)
    """By input topic. With one input they are what is said of the pipeline."""
    beside: str | None = None
    """The newest of its editions that becomes live with a set."""

    def flow(self, topic: str) -> Flow:
        """What is to be said of one of several inputs."""
        return self.flows.get(topic, _NOTHING) if len(self.inputs) > 1 else _NOTHING

    def facts(self) -> list[str]:
        """What is to be said of it, in words."""
        if self.edition is None:
            return ["has not run", *(["in trouble"] if self.trouble else [])]
        found = [f"{self.edition} {'runs' if self.is_running else 'stands still'}"]
        if self.lag is not None:
            found.append(f"lag {self.lag:,}")
        if self.rows_a_second is not None:
            found.append(f"{self.rows_a_second:,.0f} rows/s")
        if self.quarantined:
            found.append(f"{count_in_words(self.quarantined, 'record')} in quarantine")
        if self.beside is not None:
            found.append(f"{self.beside} of a set beside it")
        return [*found, *(["in trouble"] if self.trouble else [])]

    def as_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.name,
            "inputs": [
                {
                    "topic": topic,
                    "from": writer or None,
                    "lag": self.flows.get(topic, _NOTHING).lag,
                    "rows_per_second": self.flows.get(topic, _NOTHING).rows_a_second,
                    "quarantined": self.flows.get(topic, _NOTHING).quarantined,
                }
                for topic, writer in self.inputs.items()
            ],
            "topics": list(self.topics),
            "tables": list(self.tables),
            "live": self.edition,
            "version": self.version,
            "running": self.is_running,
            "lag": self.lag,
            "rows_per_second": self.rows_a_second,
            "quarantined": self.quarantined,
            "beside": self.beside,
            "trouble": list(self.trouble),
        }


@dataclass(frozen=True)
class Graph:
    nodes: Mapping[str, Node]
    _columns: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    def sources(self) -> list[str]:
        """The topics that no pipeline of the graph writes."""
        return sorted({topic for node in self.nodes.values() for topic, writer in node.inputs.items() if not writer})

    def readers(self, topic: str, writer: str) -> list[str]:
        return sorted(name for name, node in self.nodes.items() if node.inputs.get(topic) == writer)

    def column(self, name: str) -> int:
        """How many pipelines a record has gone through when it comes to this one: the longest way counts. A cycle,
        which `check_project` refuses, is cut where it closes."""
        if name not in self._columns:
            self._columns[name] = 0
            writers = (writer for writer in self.nodes[name].inputs.values() if writer)
            self._columns[name] = max((self.column(writer) + 1 for writer in writers), default=0)
        return self._columns[name]


def tree(graph: Graph) -> Iterator[str]:
    """The lines of a tree from the topics that come from elsewhere. A pipeline with several inputs is told in full
    once."""
    told: set[str] = set()
    for topic in graph.sources():
        yield topic
        yield from _below(graph, [(name, _edge(graph, name, topic)) for name in graph.readers(topic, "")], "", told)
    for name in sorted(graph.nodes.keys() - told):
        if name not in told:
            yield from _below(graph, [(name, name)], "", told)


def _edge(graph: Graph, name: str, topic: str, begins: str = "") -> str:
    """`orders → report (lag 3, 20 rows/s)`; the facts only where the pipeline has other inputs, too."""
    flow = graph.nodes[name].flow(topic)
    facts = [*flow.pace(), *flow.aside()]
    return f"{begins}{name} ({', '.join(facts)})" if facts else f"{begins}{name}"


def _below(graph: Graph, branches: Sequence[tuple[str, str]], indent: str, told: set[str]) -> Iterator[str]:
    """The lines of pipelines, each with the text that begins its line."""
    for number, (name, text) in enumerate(branches):
        is_last = number == len(branches) - 1
        node = graph.nodes[name]
        known = "(above)" if name in told else ", ".join(node.facts())
        yield f"{indent}{'└─' if is_last else '├─'} {text}  {known}"
        if name not in told:
            told.add(name)
            yield from _outputs(graph, node, f"{indent}{'   ' if is_last else '│  '}", told)


def _outputs(graph: Graph, node: Node, indent: str, told: set[str]) -> Iterator[str]:
    ends = [f"topic {topic}" for topic in node.topics if not graph.readers(topic, node.name)]
    ends += [f"table {table}" for table in node.tables]
    branches = [
        (name, _edge(graph, name, topic, f"{topic} → "))
        for topic in node.topics
        for name in graph.readers(topic, node.name)
    ]
    for number, end in enumerate(ends):
        yield f"{indent}{'└─' if number == len(ends) - 1 and not branches else '├─'} {end}"
    yield from _below(graph, branches, indent, told)


def svg(graph: Graph) -> str:
    """The graph from left to right: topics from elsewhere, then pipelines by their place on the way, then outputs that
    no pipeline reads."""
    columns: dict[int, list[tuple[str, str]]] = {0: [("source", topic) for topic in graph.sources()]}
    for name in sorted(graph.nodes):
        columns.setdefault(graph.column(name) + 1, []).append(("pipeline", name))
    last = max(columns) + 1
    for name, node in sorted(graph.nodes.items()):
        ends = [topic for topic in node.topics if not graph.readers(topic, name)]
        columns.setdefault(last, []).extend((f"end {name}", end) for end in [*ends, *node.tables])
    places = {
        box: (_MARGIN + column * (_WIDTH + _GAP), _MARGIN + row * _ROW)
        for column, boxes in columns.items()
        for row, box in enumerate(boxes)
    }
    width = 2 * _MARGIN + (max(columns) + 1) * _WIDTH + max(columns) * _GAP
    height = 2 * _MARGIN + max((len(boxes) for boxes in columns.values()), default=1) * _ROW - (_ROW - _HEIGHT)
    parts = [*_lines(graph, places), *(_box(graph, box, at) for box, at in places.items())]
    style = (
        "text{font:13px sans-serif;fill:#1b1b1b}.small{font-size:11px;fill:#555}"
        "rect{fill:#fff;stroke:#8a8a8a}.pipeline{fill:#eef4ff;stroke:#3867b5}.trouble{fill:#fff0ee;stroke:#c0392b}"
        "path{fill:none;stroke:#8a8a8a;stroke-width:1.4}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    arrow = (
        '<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" style="fill:#8a8a8a;stroke:none"/></marker></defs>'
    )
    return "\n".join([head, f"<style>{style}</style>", arrow, *parts, "</svg>", ""])


def _box(graph: Graph, box: tuple[str, str], at: tuple[int, int]) -> str:
    kind, name = box
    node = graph.nodes[name] if kind == "pipeline" else None
    look = "" if node is None else ' class="trouble"' if node.trouble else ' class="pipeline"'
    lines = [name, *(["topic"] if kind == "source" else [])]
    if kind.startswith("end "):
        lines.append("table" if name in graph.nodes[kind.removeprefix("end ")].tables else "topic")
    if node is not None:
        facts = node.facts()
        lines += [", ".join(facts[:2]), ", ".join(facts[2:])]
    x, y = at
    texts = "".join(
        f'<text x="{x + 10}" y="{y + 20 + 16 * number}"{" class=" + chr(34) + "small" + chr(34) if number else ""}>'
        f"{escape(_short(line))}</text>"
        for number, line in enumerate(lines)
        if line
    )
    told = "" if node is None else f"<title>{escape('; '.join([name, *node.facts(), *node.trouble]))}</title>"
    return f'<g>{told}<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"{look}/>{texts}</g>'


def _lines(graph: Graph, places: Mapping[tuple[str, str], tuple[int, int]]) -> Iterator[str]:
    for name, node in sorted(graph.nodes.items()):
        for topic, writer in node.inputs.items():
            start = places[("pipeline", writer) if writer else ("source", topic)]
            yield _line(start, places["pipeline", name], topic if writer else "", node.flow(topic))
    for box, at in places.items():
        if box[0].startswith("end "):
            yield _line(places["pipeline", box[0].removeprefix("end ")], at, "")


def _line(start: tuple[int, int], end: tuple[int, int], label: str, flow: Flow = _NOTHING) -> str:
    x, y = start[0] + _WIDTH, start[1] + _HEIGHT // 2
    to_x, to_y = end[0], end[1] + _HEIGHT // 2
    bend = max(_GAP // 2, (to_x - x) // 2)
    curve = f'<path d="M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}" marker-end="url(#to)"/>'
    # The edges of one writer begin at one place: what goes along each of them stands where it ends.
    for facts, at_y in ((flow.pace(), to_y - 6), (flow.aside(), to_y + 14)):
        if facts:
            text = escape(_short(", ".join(facts), 17))
            curve += f'<text class="small" x="{to_x - 8}" y="{at_y}" text-anchor="end">{text}</text>'
    if not label:
        return curve
    return f'{curve}<text class="small" x="{x + 6}" y="{y - 6}">{escape(_short(label, 17))}</text>'


def _short(text: str, most: int = 38) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"

"""Orders of the serving process to its worker: lines of JSON on the worker's standard input, whose end ends all."""

import json
from dataclasses import asdict, dataclass, field
from typing import Final

from cordwood.pipelines.execution.python_memory import PythonKilled

EXIT_JAVA_DIED: Final = 4
"""Exit code of a worker whose Spark has ended."""


@dataclass(frozen=True)
class WorkerOrders:
    """What a worker is started with. The connection comes before all other orders, since it may have a password."""

    directory: str
    """The pipelines' state."""
    events: int
    """The descriptor to write events to."""
    once: bool

    def to_text(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Survey:
    """Load these files, and tell which pipelines they declare."""

    files: tuple[str, ...]


@dataclass(frozen=True)
class BeginQuery:
    """Run a pipeline in a thread of its own."""

    pipeline: str
    file: str
    edition: str = ""
    """Go on with the definition that this edition has begun to run with; empty: with the author's file."""
    tried_from: str = ""
    """The author's file, if that definition is on trial."""
    once: bool = False
    spark: dict[str, str] = field(default_factory=dict)
    """Settings for the start of Spark, which the first query starts."""


@dataclass(frozen=True)
class EndQuery:
    """End a pipeline after its batch."""

    pipeline: str


Order = Survey | BeginQuery | EndQuery | PythonKilled
_KINDS = {kind.__name__: kind for kind in (Survey, BeginQuery, EndQuery, PythonKilled)}


def to_line(order: Order) -> str:
    return json.dumps({"order": type(order).__name__, **asdict(order)})


def from_line(line: str) -> Order:
    value = json.loads(line)
    order: Order = _KINDS[value.pop("order")](**value)
    return order

"""The metrics of pipelines, for Prometheus, in the process that supervises them: made of the events of all of them.

    with PipelineMonitor(project, bootstrap, "127.0.0.1:9405") as monitor:
        ...
        monitor.heard(event)            # each event of each pipeline, from any thread

A scrape costs the pipelines nothing: it copies counters in a thread of its own, and never asks a broker.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Final, Self

from cordwood.client.bootstrap import Bootstrap
from cordwood.model.identifiers import TopicPartition
from cordwood.pipelines.definition.errors import Refusal
from cordwood.pipelines.editions.checkpoint import committed_position
from cordwood.pipelines.editions.events import Event
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.execution.running import Ending
from cordwood.spark.monitoring import endpoint
from cordwood.spark.monitoring.counts import Counts, Values, Who, values_of
from cordwood.spark.monitoring.endpoint import Endpoint
from cordwood.spark.monitoring.inputs import LOOK_EVERY_S, InputWatch

_HINT: Final = "for example --metrics 127.0.0.1:9405"


class WrongAddress(Refusal):
    """The metrics cannot be shown at the address that was asked for."""

    code = "METRICS_ADDRESS"


class PipelineMonitor:
    """Shows the metrics of all pipelines of a project whose events it hears."""

    def __init__(
        self, project: Project, bootstrap: Bootstrap, address: str, *, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        self._project = project
        with _refused():
            self._endpoint = Endpoint(address)
        self._lock = threading.Lock()
        self._counts: dict[Who, Counts] = {}
        self._editions: dict[str, str] = {}
        """By pipeline: the edition heard of last. The lag of one that another has replaced would grow for ever."""
        self._inputs = InputWatch(bootstrap, every_s=look_every_s)

    def __enter__(self) -> Self:
        """Listens from now on. Raises WrongAddress."""
        with _refused():
            self._endpoint.open(self._values)
        self._inputs.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inputs.close()
        self._endpoint.close()

    @property
    def url(self) -> str:
        return self._endpoint.url

    def heard(self, event: Event) -> None:
        """Counts an event of any pipeline of the project."""
        who = Who(str(event["pipeline"]), str(event["edition"]))
        with self._lock:
            self._counts.setdefault(who, Counts()).heard(event)
            former = self._editions.get(who.pipeline)
            self._editions[who.pipeline] = who.edition
        if former not in (None, who.edition):
            self._inputs.forget(Who(who.pipeline, str(former)))
        if event["event"] == "ended" and event.get("reason") == Ending.SWAPPED:
            self._inputs.forget(who)
        else:
            self._inputs.watch(who, partial(self._position, who))

    def _position(self, who: Who) -> Mapping[TopicPartition, int] | None:
        try:
            found = committed_position(self._project.state(who.pipeline).checkpoint(who.edition))
        except Refusal:
            return None  # the checkpoint is being replaced
        return {
            TopicPartition(topic, partition): offset
            for topic, partitions in found.items()
            for partition, offset in partitions.items()
        }

    def _values(self) -> Values:
        with self._lock:
            counted = values_of(self._counts.items())
        return {**counted, **self._inputs.values()}


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except endpoint.WrongAddress as wrong:
        raise WrongAddress(str(wrong), _HINT) from None

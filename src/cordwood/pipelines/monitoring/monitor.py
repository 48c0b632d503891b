"""The endpoint of a process that supervises pipelines: takes the events of all of them, and answers Prometheus.

    with PipelineMonitor(project, bootstrap_servers, "127.0.0.1:9405") as monitor:
        ...
        monitor.heard(event)            # each event of each pipeline, from any thread

A scrape costs the pipelines nothing: it copies counters in a thread of its own, and never asks a broker.
"""

import threading
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from prometheus_client import start_http_server

from cordwood.metrics.exposition import registry_of
from cordwood.pipelines.definition.errors import Refusal
from cordwood.pipelines.editions.checkpoint import committed_position
from cordwood.pipelines.editions.events import Event
from cordwood.pipelines.editions.positions import Positions
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.execution.running import Ending
from cordwood.pipelines.monitoring.counts import Counts, Values, Who, values_of
from cordwood.pipelines.monitoring.inputs import LOOK_EVERY_S, InputWatch

_EXAMPLE: Final = "--metrics 127.0.0.1:9405"


class WrongAddress(Refusal):
    """The metrics cannot be shown at the address that was asked for."""

    code = "METRICS_ADDRESS"


class PipelineMonitor:
    """Shows the metrics of all pipelines of a project whose events it hears."""

    def __init__(
        self, project: Project, bootstrap_servers: str, address: str, *, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        self._project = project
        self._host, self._port = _parsed(address)
        self._lock = threading.Lock()
        self._counts: dict[Who, Counts] = {}
        self._inputs = InputWatch(bootstrap_servers, every_s=look_every_s)
        self._server: Any = None

    def __enter__(self) -> Self:
        """Listens from now on. Raises WrongAddress."""
        try:
            self._server, _ = start_http_server(self._port, self._host, registry_of(self._values))
        except OSError as failure:
            reason = failure.strerror or failure
            raise WrongAddress(
                f"no metrics at {self._host}:{self._port}: {reason}", f"another one: {_EXAMPLE}"
            ) from None
        self._inputs.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inputs.close()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def heard(self, event: Event) -> None:
        """Counts an event of any pipeline of the project."""
        who = Who(str(event["pipeline"]), str(event["edition"]))
        with self._lock:
            self._counts.setdefault(who, Counts()).heard(event)
        if event["event"] == "ended" and event.get("reason") == Ending.SWAPPED:
            self._inputs.forget(who)
        else:
            self._inputs.watch(who, partial(self._position, who))

    def _position(self, who: Who) -> Positions:
        return committed_position(self._project.state(who.pipeline).checkpoint(who.edition))

    def _values(self) -> Values:
        with self._lock:
            counted = values_of(self._counts.items())
        return {**counted, **self._inputs.values()}


def _parsed(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise WrongAddress(f"{address!r} is no address of the form HOST:PORT", f"for example {_EXAMPLE}")
    return host.strip("[]") or "0.0.0.0", int(port)

"""The metrics service: counters, the watch on the loop, and the endpoint, put together."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cordwood.broker.machine.loop_watch import LoopWatch
from cordwood.broker.metrics.endpoint import MetricsEndpoint, Readiness, Secured
from cordwood.broker.metrics.scrape import prepare_scrape
from cordwood.broker.network.activity import Activity
from cordwood.metrics.exposition import exposition
from cordwood.model.settings.listeners import ListenerAddress
from cordwood.wire.apis import APIS

if TYPE_CHECKING:
    from cordwood.broker.network.connections import Connections
    from cordwood.broker.network.tls.listeners import TlsListeners
    from cordwood.broker.storage.flusher import CountingFlusher
    from cordwood.broker.trail.recorder import SecurityTrail
    from cordwood.node.node import Node


class MetricsService:
    def __init__(self) -> None:
        self.activity = Activity(frozenset(APIS))
        self._endpoint: MetricsEndpoint | None = None
        self._scrape: Callable[[], Callable[[], bytes]] | None = None

    @classmethod
    async def start(
        cls,
        listener: ListenerAddress,
        not_ready: Readiness,
        remark: Readiness,
        secured: Secured | None = None,
    ) -> "MetricsService":
        """Starts the endpoint. `remark` adds to the text of a broker that takes clients; with `secured` it speaks
        HTTPS. Raises OSError if the broker cannot listen on the address."""
        service = cls()
        try:
            service._endpoint = await MetricsEndpoint.start(listener, service._prepare, not_ready, remark, secured)
        except BaseException:
            service.close()
            raise
        return service

    @property
    def address(self) -> tuple[str, int]:
        assert self._endpoint is not None
        return self._endpoint.address

    def show(
        self,
        node: "Node",
        connections: "Connections",
        flusher: "CountingFlusher",
        loop_watch: LoopWatch,
        tls: "TlsListeners | None" = None,
        trail: "SecurityTrail | None" = None,
    ) -> None:
        """Shows the metrics of a complete broker. Until this call scrapes are empty."""
        self._scrape = lambda: prepare_scrape(node, connections, self.activity, flusher, loop_watch, tls, trail)

    def close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()

    def _prepare(self) -> Callable[[], bytes]:
        return self._scrape() if self._scrape is not None else lambda: exposition({})

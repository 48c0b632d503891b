"""The endpoint that answers Prometheus, in threads of its own.

A scrape takes the values of the moment, and never asks a broker.
"""

from collections.abc import Callable
from typing import Any, Final

from prometheus_client import start_http_server

from cordwood.metrics.exposition import registry_of
from cordwood.spark.monitoring.counts import Values


class WrongAddress(ValueError):
    """The metrics cannot be shown at the address that was asked for."""


class Endpoint:
    """Answers `GET /metrics` at an address of the form HOST:PORT. Raises WrongAddress."""

    def __init__(self, address: str) -> None:
        self._host, self._port = _parsed(address)
        self._server: Any = None

    def open(self, take: Callable[[], Values]) -> None:
        """Listens from now on. `take` gives the values of a scrape, in the thread of that scrape."""
        try:
            self._server, _ = start_http_server(self._port, self._host, registry_of(take))
        except OSError as failure:
            reason = failure.strerror or failure
            raise WrongAddress(f"no metrics at {self._host}:{self._port}: {reason}") from None

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def close(self) -> None:
        """Listens no longer, and does nothing if it never did."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


_EVERYWHERE: Final = "0.0.0.0"


def _parsed(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise WrongAddress(f"{address!r} is no address of the form HOST:PORT")
    return host.strip("[]") or _EVERYWHERE, int(port)

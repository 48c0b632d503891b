"""The port of a node towards other brokers: a request goes out, and its answer or its failure comes back as an event.

Every room that talks to a broker (fetchers, writers of markers, verification) uses this port, also for its own broker:
nothing may depend on where a partition is led. The port promises one call of `done` for each request, and no order
among requests. The port repeats nothing: only the sender knows whether a request may be sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol

from cordwood.model.moment import Moment
from cordwood.wire.api_types import Response

if TYPE_CHECKING:
    from cordwood.wire.api_types import KeyOf


class PeerRequest(NamedTuple, Generic[Response]):
    broker_id: int
    api_key: KeyOf[Response]
    versions: tuple[int, int]
    """The first and the last version that `values` can be written in; the highest that the peer serves is used."""
    values: Mapping[str, Any]
    """The body, with Kafka's field names (`wire/messages`)."""
    timeout_ms: int
    """The sender's timeout from now on, connecting included."""
    waits_long: bool = False
    """True if the peer may hold the request while others of the same API come: it goes on a connection of its own."""


@dataclass(frozen=True, slots=True)
class PeerAnswer(Generic[Response]):
    version: int
    body: Response
    """The response, with Kafka's field names as attributes."""


class PeerFailure(Enum):
    """The reason why there is no answer."""

    UNKNOWN_BROKER = "no broker of this id is registered"
    NO_CONNECTION = "the broker cannot be connected to"
    UNSUPPORTED_VERSION = "the broker serves no version of the request"
    OVERLOADED = "too much waits for the broker's answers already"
    TIMED_OUT = "the broker did not answer in time"
    DISCONNECTED = "the connection broke before the answer"


class PeerFailed(NamedTuple):
    reason: PeerFailure
    text: str
    perhaps_handled: bool = False
    """True if the peer may have got the request. If not, it is safe to send the request again."""


PeerOutcome = PeerAnswer[Response] | PeerFailed
Done = Callable[[PeerAnswer[Response] | PeerFailed, Moment], None]


class Peers(Protocol):
    def send(self, request: PeerRequest[Response], done: Done[Response]) -> None:
        """Calls `done` exactly once, as a later event of the node, no later than the request's timeout."""


class Home(Protocol):
    """The broker itself, for rooms that need no codec between them."""

    def call(self, work: Callable[[], None]) -> None:
        """Does the work in a later event of the node: a call to oneself takes effect no sooner than a request."""


def common_version(wanted: tuple[int, int], served: tuple[int, int] | None) -> int | None:
    """The highest version in both ranges; None if there is none."""
    if served is None:
        return None
    version = min(wanted[1], served[1])
    return version if version >= max(wanted[0], served[0]) else None


def unsupported(request: PeerRequest, served: tuple[int, int] | None) -> PeerFailed:
    serves = "none" if served is None else f"versions {served[0]} to {served[1]}"
    return PeerFailed(
        PeerFailure.UNSUPPORTED_VERSION,
        f"API {request.api_key} is sent in versions {request.versions[0]} to {request.versions[1]}, "
        f"and broker {request.broker_id} serves {serves}",
    )

"""What a node needs from whoever drives it: a place for answers, and the slow outside world.

The broker drives a node on uvloop; the simulator drives the same node from a seeded heap.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from cordwood.cluster.controller import Controller
from cordwood.log.lookup import LogSlice

T = TypeVar("T")

Frame = bytes | list[bytes | LogSlice]
"""A whole response frame, with its size and header. Records may still be in their file."""


class Reply(Protocol):
    """The answer to one request. Exactly one of `send`, `nothing` and `hang_up` is called, exactly once."""

    client_host: str
    connection_id: int

    def hold(self) -> None:
        """Its connection's requests are handled in steps: bring no other request of it until `release`."""

    def release(self) -> None: ...

    def send(self, frame: Frame) -> None: ...

    def nothing(self) -> None:
        """The protocol has no answer to this request (acks=0)."""

    def hang_up(self, reason: str) -> None:
        """The only answer left is to close the connection."""


class Effects(Protocol):
    """Work that must not be done in the loop. `done` is called in the loop, with the result or the exception."""

    def controller(self, call: Callable[[Controller], Awaitable[T]], done: Callable[[T | Exception], None]) -> None:
        """Ask the cluster's controller: it goes through the metadata store."""

    def blocking(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """The broker's own work on files (checkpoints, loading of coordinators), in a thread."""

    def for_client(self, connection_id: int, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Work that a client's request asks for, in other threads: no connection gets all of them."""

    def wake(self) -> None:
        """A log became dirty or a deadline moved: flush and tick soon. Cheap; called often."""

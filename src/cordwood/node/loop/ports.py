"""The ports of a node towards its driver: `Reply` for answers, `Effects` for slow work.

The broker drives a node on uvloop; the simulator drives the same node from a seeded heap.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.log.reading.lookup import LogSlice
from cordwood.security.sessions import Session

T = TypeVar("T")

Frame = bytes | list[bytes | LogSlice]
"""A whole response frame, with its size and header. Records may still be in their file."""


class Reply(Protocol):
    """The answer to one request. One of `send`, `send_last`, `nothing` and `hang_up` is called, exactly once."""

    connection_id: int

    @property
    def session(self) -> Session:
        """The session of the connection that the request came in on."""

    def hold(self) -> None:
        """Asks for no other request of the connection until `release`: a request is handled later or in steps. Each
        `hold` has its own `release`, for several requests of one connection may be under way."""

    def release(self) -> None: ...

    def send(self, frame: Frame) -> None: ...

    def pause(self, for_ms: int) -> None:
        """Takes no further request of the connection for so long. Answers leave as ever."""

    def nothing(self) -> None:
        """Ends the request without an answer, as the protocol has it for acks=0."""

    def send_last(self, frame: Frame, reason: str) -> None:
        """Sends the answer, and closes the connection behind it."""

    def begin(self, session: Session) -> None:
        """Begins another session on the connection: its peer has proved who it is."""

    def hang_up(self, reason: str) -> None:
        """Closes the connection: the protocol has no other answer left."""


class Effects(Protocol):
    """Work that must not be done in the loop. `done` is called in the loop, with the result or the exception."""

    def metadata(self, call: Callable[[MetadataWriter], Awaitable[T]], done: Callable[[T | Exception], None]) -> None:
        """Changes the cluster's metadata, through the metadata store."""

    def blocking(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Does the broker's own work on files (checkpoints, loading of coordinators) in a thread."""

    def for_client(self, connection_id: int, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Does the work of a client's request in other threads; no connection gets all of these threads."""

    def wake(self) -> None:
        """Asks for a flush and a tick soon: a log became dirty or a deadline moved. Cheap; called often."""

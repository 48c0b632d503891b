"""One request on its way through the node, and the declaration of a handler.

`Request[X]` is a request of the API `X` of `wire/message_types`: the fields of its body and of its answer have types.
`Request` alone is a request of any API: it has a header, a frame and a reply, and nothing that depends on the API.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from cordwood.model.moment import Moment
from cordwood.node.loop.ports import Frame, Reply
from cordwood.node.loop.turns import ANSWERED_BYTES_PER_EVENT, Steps, Turns
from cordwood.node.requests.access import Judge
from cordwood.wire.api_types import ApiTypes, Array, Served_co
from cordwood.wire.apis import APIS, Api, ApiKey
from cordwood.wire.encoding.bad_messages import AnswerTooLarge
from cordwood.wire.requests import RequestHeader, begin_response, decode_in_steps, decode_request

if TYPE_CHECKING:
    from cordwood.security.trail.port import Changed

NARROW_BYTES = 2 * 1024
"""Requests of at most this many bytes are decoded in one go: an element takes a byte or more."""

T = TypeVar("T")
Element = TypeVar("Element", covariant=True)
Rooms = TypeVar("Rooms", contravariant=True)
Types = TypeVar("Types", bound=ApiTypes[Any, Any, Any])
Body = TypeVar("Body")
Answer = TypeVar("Answer")


class Request(Generic[Served_co]):
    """A request and its reply. The frame is the network's buffer, valid until the handler returns or first pauses."""

    __slots__ = ("_turns", "frame", "header", "judge", "now", "reply", "send", "version")

    def __init__(
        self,
        header: RequestHeader,
        frame: memoryview,
        reply: Reply,
        now: Moment,
        turns: Turns,
        judge: Judge,
        send: Callable[[Frame], None] | None = None,
    ) -> None:
        self.header = header
        self.frame = frame
        self.reply = reply
        self.now = now
        self.version = header.api_version
        self._turns = turns
        self.judge = judge
        """Says what the sender of the request may do."""
        self.send = send or reply.send
        """Sends the frame of the answer."""

    def decode(self: Request[ApiTypes[Body, Any, Any]]) -> Body:
        """The request, with Kafka's field names as attributes (`wire/messages`)."""
        return decode_request(self.header, self.frame)  # type: ignore[no-any-return]

    def read(self: Request[ApiTypes[Body, Any, Any]]) -> Generator[None, None, Body]:
        """Decodes the request as `decode` does, a wide request in steps."""
        if len(self.frame) <= NARROW_BYTES:
            return decode_request(self.header, self.frame)  # type: ignore[no-any-return]
        return (yield from decode_in_steps(self.header, self.frame))  # type: ignore[no-any-return]

    def go_on(self, steps: Steps) -> None:
        """Takes these steps in later turns, after the handler has returned."""
        self._turns.add(self.reply, steps)

    def changed(self, changed: Changed) -> None:
        """Says what the request changed, of which its answer tells the same as of any other, or nothing."""

    def let_go_of_frame(self) -> None:
        """Frees the network's buffer: the request may wait for minutes."""
        self.frame = memoryview(b"")

    def _answer(self, **values: Any) -> None:
        """Sends the response made of these values, in the request's version, a wide response in steps. The elements of
        `Made` arrays are made in these steps."""
        turns = self._turns
        if (turns.answered_bytes > ANSWERED_BYTES_PER_EVENT and turns.answered_much()) or turns.made_enough:
            turns.add(self.reply, self._answering(values))
            return
        try:
            frame = begin_response(self.header, values)
        except AnswerTooLarge as reason:
            self.reply.hang_up(str(reason))
            return
        if isinstance(frame, bytes):
            turns.answered_bytes += len(frame)
            self.send(frame)
        else:
            turns.add(self.reply, self._answering_on(frame))

    if TYPE_CHECKING:

        @property
        def answer(self: Request[ApiTypes[Any, Answer, Any]]) -> Answer:
            """Calls `_answer` with the fields of this API's response."""

    else:
        answer = _answer

    def _answering(self, values: dict[str, Any]) -> Steps:
        frame = begin_response(self.header, values)
        if isinstance(frame, bytes):
            self._turns.answered_bytes += len(frame)
            self.send(frame)
        else:
            yield
            yield from self._answering_on(frame)

    def _answering_on(self, steps: Generator[int, None, list[bytes]]) -> Steps:
        turns, connection_id = self._turns, self.reply.connection_id
        try:
            while True:
                turns.makes(connection_id, next(steps))
                yield
        except StopIteration as end:
            parts: list[bytes] = end.value
        finally:
            turns.made(connection_id)
        turns.answered_bytes += len(parts[0])
        self.send(parts)  # type: ignore[arg-type]


class Made(Generic[Element]):
    """An array of a response whose elements are made one by one, while the response is written."""

    __slots__ = ("_make", "_of")

    def __init__(self, of: Array[T], make: Callable[[T], Element]) -> None:
        self._of: Array[Any] = of
        self._make: Callable[[Any], Element] = make

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[Element]:
        return map(self._make, self._of)


class Handler(Generic[Rooms]):
    """An API as a node serves it: the versions stand beside the function, so the advertised versions are true.

    The function takes only the rooms that it needs (`apis.py` checks that a node has them).
    """

    __slots__ = ("api", "handle")

    def __init__(self, api: Api, handle: Callable[[Rooms, Request[Any]], Steps | None]) -> None:
        """`handle` returns steps if the request may be wide (`wire.widths`)."""
        self.api = api
        self.handle = handle


def serves(
    key: ApiKey[Types], min_version: int, max_version: int, handle: Callable[[Rooms, Request[Types]], Steps | None]
) -> Handler[Rooms]:
    return Handler(APIS[key].narrowed(min_version, max_version), handle)


class Served(NamedTuple):
    """An API of one node."""

    api: Api
    handle: Callable[[Request[Any]], Steps | None]


def served(rooms: Rooms, handlers: Iterable[Handler[Rooms]]) -> dict[int, Served]:
    """The handlers of a family of APIs with the rooms that they need, by API key."""
    return {handler.api.key: Served(handler.api, partial(handler.handle, rooms)) for handler in handlers}


def in_order(count: int, done: Callable[[list[T]], None]) -> Callable[[int, T], None]:
    """Collects answers that come one by one: `done` gets all answers, each in its place, after the last."""
    answers: list[Any] = [None] * count
    missing = count

    def one(place: int, answer: T) -> None:
        nonlocal missing
        answers[place] = answer
        missing -= 1
        if not missing:
            done(answers)

    if not count:
        done(answers)
    return one


def by_topic(results: Iterable[tuple[str, T]]) -> Array[tuple[str, list[T]]]:
    """Groups per-partition results by topic, as the protocol nests them, in order of first appearance."""
    topics: dict[str, list[T]] = {}
    for topic, result in results:
        topics.setdefault(topic, []).append(result)
    return topics.items()

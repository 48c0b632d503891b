"""One request on its way through the node, and the declaration of a handler."""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from cordwood.model.moment import Moment
from cordwood.node.ports import Reply
from cordwood.node.turns import ANSWERED_BYTES_PER_EVENT, Steps, Turns
from cordwood.wire.apis import APIS, Api, ApiKey
from cordwood.wire.errors import AnswerTooLarge
from cordwood.wire.requests import RequestHeader, begin_response, decode_in_steps, decode_request

NARROW_BYTES = 2 * 1024
"""Requests of at most so many bytes are decoded in one go: an element takes a byte or more."""

T = TypeVar("T")
Rooms = TypeVar("Rooms", contravariant=True)


class Request:
    """A request and its reply. The frame is the network's buffer, valid until the handler returns or first pauses."""

    __slots__ = ("_turns", "frame", "header", "now", "reply", "version")

    def __init__(self, header: RequestHeader, frame: memoryview, reply: Reply, now: Moment, turns: Turns) -> None:
        self.header = header
        self.frame = frame
        self.reply = reply
        self.now = now
        self.version = header.api_version
        self._turns = turns

    def decode(self) -> Any:
        """The request, with Kafka's field names as attributes (`wire/messages`)."""
        return decode_request(self.header, self.frame)

    def read(self) -> Generator[None, None, Any]:
        """Decodes the request as `decode` does, a wide request in steps."""
        if len(self.frame) <= NARROW_BYTES:
            return decode_request(self.header, self.frame)
        return (yield from decode_in_steps(self.header, self.frame))

    def go_on(self, steps: Steps) -> None:
        """Takes these steps in later turns, after the handler has returned."""
        self._turns.add(self.reply, steps)

    def let_go_of_frame(self) -> None:
        """Frees the network's buffer: the request may wait for minutes."""
        self.frame = memoryview(b"")

    def answer(self, **values: Any) -> None:
        """Sends the response made of these values, in the request's version, a wide response in steps. The elements of
        `Made` arrays are made in these steps."""
        turns = self._turns
        if turns.answered_bytes > ANSWERED_BYTES_PER_EVENT and turns.answered_much():
            turns.add(self.reply, self._answering(values))
            return
        try:
            frame = begin_response(self.header, values)
        except AnswerTooLarge as reason:
            self.reply.hang_up(str(reason))
            return
        if isinstance(frame, bytes):
            turns.answered_bytes += len(frame)
            self.reply.send(frame)
        else:
            turns.add(self.reply, self._answering_on(frame))

    def _answering(self, values: dict[str, Any]) -> Steps:
        frame = begin_response(self.header, values)
        if isinstance(frame, bytes):
            self._turns.answered_bytes += len(frame)
            self.reply.send(frame)
        else:
            yield
            yield from self._answering_on(frame)

    def _answering_on(self, steps: Generator[None, None, list[bytes]]) -> Steps:
        parts = yield from steps
        self._turns.answered_bytes += len(parts[0])
        self.reply.send(parts)  # type: ignore[arg-type]


class Made(Generic[T]):
    """An array of a response whose elements are made one by one, while the response is written."""

    __slots__ = ("_make", "_of")

    def __init__(self, of: Collection[T], make: Callable[[T], Any]) -> None:
        self._of = of
        self._make = make

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._of)


class Handler(Generic[Rooms]):
    """An API as a node serves it: the versions stand beside the function, so the advertised versions are true.

    The function takes the rooms that it needs, and nothing else of the node (`apis.py` checks that a node has them).
    """

    __slots__ = ("api", "handle")

    def __init__(self, api: Api, handle: Callable[[Rooms, Request], Steps | None]) -> None:
        """`handle` returns steps if the request may be wide (`wire.widths`)."""
        self.api = api
        self.handle = handle


def serves(
    key: ApiKey, min_version: int, max_version: int, handle: Callable[[Rooms, Request], Steps | None]
) -> Handler[Rooms]:
    return Handler(APIS[key].narrowed(min_version, max_version), handle)


class Served(NamedTuple):
    """An API of one node."""

    api: Api
    handle: Callable[[Request], Steps | None]


def served(rooms: Rooms, handlers: Iterable[Handler[Rooms]]) -> dict[int, Served]:
    """The handlers of a family of APIs with the rooms that they need, by API key."""
    return {handler.api.key: Served(handler.api, partial(handler.handle, rooms)) for handler in handlers}


def in_order(count: int, done: Callable[[list[Any]], None]) -> Callable[[int, Any], None]:
    """Collects answers that come one by one: `done` gets all answers, each in its place, after the last."""
    answers: list[Any] = [None] * count
    missing = count

    def one(place: int, answer: Any) -> None:
        nonlocal missing
        answers[place] = answer
        missing -= 1
        if not missing:
            done(answers)

    if not count:
        done(answers)
    return one


def by_topic(results: Iterable[tuple[str, dict[str, Any]]], name_field: str = "name") -> list[dict[str, Any]]:
    """Groups per-partition results by topic, as the protocol nests them, in order of first appearance."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, result in results:
        topics.setdefault(topic, []).append(result)
    return [{name_field: topic, "partitions": partitions} for topic, partitions in topics.items()]

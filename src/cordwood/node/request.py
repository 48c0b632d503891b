"""One request on its way through the node, and what a handler declares beside itself."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from cordwood.node.ports import Reply
from cordwood.wire.apis import APIS, Api, ApiKey
from cordwood.wire.errors import AnswerTooLarge
from cordwood.wire.requests import RequestHeader, decode_request, encode_response

if TYPE_CHECKING:
    from cordwood.node.node import Node


class Request:
    """A request and the place for its answer. The frame is the network's buffer: valid until the handler returns."""

    __slots__ = ("frame", "header", "now_ms", "reply", "version")

    def __init__(self, header: RequestHeader, frame: memoryview, reply: Reply, now_ms: int) -> None:
        self.header = header
        self.frame = frame
        self.reply = reply
        self.now_ms = now_ms
        self.version = header.api_version

    def decode(self) -> Any:
        """The request, with Kafka's field names as attributes (`wire/messages`)."""
        return decode_request(self.header, self.frame)

    def let_go_of_frame(self) -> None:
        """For a request that may wait for minutes: the network's buffer is not kept in memory for it."""
        self.frame = memoryview(b"")

    def answer(self, **values: Any) -> None:
        """Sends the response made of these values, in the request's version."""
        try:
            frame = encode_response(self.header, values)
        except AnswerTooLarge as reason:
            self.reply.hang_up(str(reason))
        else:
            self.reply.send(frame)


class Handler(NamedTuple):
    """An API as this node serves it: the versions stand beside the function, so what is advertised is true."""

    api: Api
    handle: Callable[["Node", Request], None]


def serves(key: ApiKey, min_version: int, max_version: int, handle: Callable[["Node", Request], None]) -> Handler:
    return Handler(APIS[key].narrowed(min_version, max_version), handle)


def in_order(count: int, done: Callable[[list[Any]], None]) -> Callable[[int, Any], None]:
    """For answers that come one by one: `done` gets all of them, each in its place, when the last is there."""
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
    """Per-partition results as the protocol nests them: grouped by topic, in the order they came."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, result in results:
        topics.setdefault(topic, []).append(result)
    return [{name_field: topic, "partitions": partitions} for topic, partitions in topics.items()]

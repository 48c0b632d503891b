"""What an audit is asked: the topic, what makes two records the same event, and what counts as too much."""

from dataclasses import dataclass

from cordwood.client.settings import parse_bootstrap
from cordwood.pipelines.audit.report import FAILING, Check

EVENT_ID_KINDS = ("header", "json")


class BadQuestion(ValueError):
    """An audit that cannot be asked for like this; the message says why."""


@dataclass(frozen=True)
class EventId:
    """Where a record says which event it tells of: a header, or a field of its JSON value."""

    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "EventId":
        """`header:NAME` or `json:PATH`, where `json:order.id` is the field id of the object order."""
        kind, separator, name = text.partition(":")
        if kind not in EVENT_ID_KINDS or not separator or not name:
            raise BadQuestion(f"an event id is header:NAME or json:PATH, not {text!r}")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Questions:
    bootstrap_servers: str
    topic: str
    event_id: EventId | None = None
    samples: int = 5
    """At most so many examples of each finding."""
    skew_ratio: float = 2.0
    """A partition with so many times its fair share is reported, and a key with that much of a partition's."""
    fail_on: tuple[Check, ...] = FAILING

    def __post_init__(self) -> None:
        try:
            parse_bootstrap(self.bootstrap_servers)
        except ValueError as problem:
            raise BadQuestion(str(problem)) from None

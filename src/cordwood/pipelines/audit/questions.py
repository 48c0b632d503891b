"""The questions of an audit: the topic, what makes two records the same event, and how much skew is too much."""

from dataclasses import dataclass

from cordwood.client.settings import parse_bootstrap
from cordwood.pipelines.audit.report import FAILING, Check

EVENT_ID_KINDS = ("header", "json")


class BadQuestion(ValueError):
    """The audit cannot be asked for like this; the message says why."""


@dataclass(frozen=True)
class EventId:
    """Names the place of a record's event id: a header, or a field of the JSON value."""

    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "EventId":
        """Parses `header:NAME` or `json:PATH`; `json:order.id` is the field `id` of the object `order`."""
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
    """The most examples that are shown of each finding."""
    skew_ratio: float = 2.0
    """Skew is reported from this ratio on: a partition's share by its fair share, or a key's share of its partition."""
    fail_on: tuple[Check, ...] = FAILING

    def __post_init__(self) -> None:
        try:
            parse_bootstrap(self.bootstrap_servers)
        except ValueError as problem:
            raise BadQuestion(str(problem)) from None

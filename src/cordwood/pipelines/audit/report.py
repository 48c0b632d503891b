"""The questions of an audit and its findings, as values: for people, for JSON, and for an exit code.

Order has a scope: each finding names the scope in which it was looked for, key or partition.
"""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from cordwood.client.bootstrap import Bootstrap
from cordwood.client.settings import parse_bootstrap


class Check(StrEnum):
    """The checks of an audit. `Report.fail_on` names those that fail it."""

    SPLIT_KEYS = "split-keys"
    INVERSIONS = "inversions"
    DUPLICATES = "duplicates"
    GAPS = "gaps"
    SKEW = "skew"


FAILING = (Check.SPLIT_KEYS, Check.DUPLICATES, Check.GAPS)
"""The checks that fail an audit by default. Inversions are common where several clocks write, and skew is a matter of
degree."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    check: Check
    scope: str
    found: int
    """The number of keys, records or offsets (`what` names them); 0 if there is nothing to report."""
    what: str
    """The noun that `found` counts."""
    remarks: tuple[str, ...] = ()
    samples: tuple[dict[str, Any], ...] = ()
    explained: bool = False
    """True if the finding is expected: gaps in a compacted topic."""

    @property
    def clean(self) -> bool:
        return self.found == 0 or self.explained


@dataclass(frozen=True)
class PartitionShare:
    partition: int
    start_offset: int
    end_offset: int
    records: int
    share: float


@dataclass(frozen=True)
class Report:
    """The audit of one topic."""

    topic: str
    records: int
    keys: int
    partitions: tuple[PartitionShare, ...]
    findings: tuple[Finding, ...]
    hot_keys: tuple[dict[str, Any], ...] = ()
    fail_on: tuple[Check, ...] = field(default=FAILING)

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that found something and were asked to fail the audit."""
        return tuple(each.check for each in self.findings if not each.clean and each.check in self.fail_on)

    @property
    def ok(self) -> bool:
        return not self.failed

    def finding(self, check: Check) -> Finding:
        return next(each for each in self.findings if each.check is check)

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "ok": self.ok,
            "failed": list(self.failed),
            "fail_on": list(self.fail_on),
            "records": self.records,
            "keys": self.keys,
            "partitions": [asdict(each) for each in self.partitions],
            "hot_keys": list(self.hot_keys),
            "findings": [{**asdict(each), "clean": each.clean} for each in self.findings],
        }


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
    bootstrap: Bootstrap
    topic: str
    event_id: EventId | None = None
    samples: int = 5
    """The most examples that are shown of each finding."""
    skew_ratio: float = 2.0
    """Skew is reported from this ratio on: a partition's share by its fair share, or a key's share of its partition."""
    fail_on: tuple[Check, ...] = FAILING

    def __post_init__(self) -> None:
        try:
            parse_bootstrap(self.bootstrap.servers, self.bootstrap.security.protocol)
        except ValueError as problem:
            raise BadQuestion(str(problem)) from None

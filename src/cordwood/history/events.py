"""The events of a history and their written form: one JSON object per line.

docs/history.md describes the format. `parse(write(event)) == event` holds, and a line that is not an event is refused
with a reason instead of being skipped: a checker that drops lines proves nothing.
"""

import json
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Acks = Literal["all", "1", "0"]
Mode = Literal["assign", "subscribe"]
Isolation = Literal["read_committed", "read_uncommitted"]
Start = Literal["earliest", "latest"]


class InvalidHistory(Exception):
    """The history cannot be judged: a line is not an event, or breaks a rule of the format."""


class Producer(NamedTuple):
    """A producer and its settings, which decide the checker's demands on its records."""

    at_ms: float
    who: str
    acks: Acks
    idempotent: bool
    retries: bool


class Reader(NamedTuple):
    """A reader. `start` is the beginning of a subscriber without a committed position."""

    at_ms: float
    who: str
    mode: Mode
    isolation: Isolation
    start: Start


class Send(NamedTuple):
    """A send begins. Written before the client is given the record."""

    at_ms: float
    who: str
    topic: str
    value: str
    transaction: str | None


class Acked(NamedTuple):
    """The send was acknowledged. The offset is None if the client does not learn it (acks=0)."""

    at_ms: float
    who: str
    topic: str
    value: str
    partition: int
    offset: int | None


class Failed(NamedTuple):
    """The send certainly had no effect: the broker refused it, or it never left the client."""

    at_ms: float
    who: str
    topic: str
    value: str


class Unknown(NamedTuple):
    """The send's outcome is not known (a timeout, a lost connection): the record may be in the log or not."""

    at_ms: float
    who: str
    topic: str
    value: str


class Positioned(NamedTuple):
    """A reader assigned itself a partition or moved in it. An offset of None means that the reader does not know it."""

    at_ms: float
    who: str
    topic: str
    partition: int
    offset: int | None


class Poll(NamedTuple):
    """The records that one poll returned of one partition, in their order."""

    at_ms: float
    who: str
    topic: str
    partition: int
    records: tuple[tuple[int, str], ...]


class Drained(NamedTuple):
    """The reader reached the end of the partition: all records acknowledged before this line must have been read."""

    at_ms: float
    who: str
    topic: str
    partition: int


class TransactionBegun(NamedTuple):
    at_ms: float
    who: str
    transaction: str


class TransactionCommitting(NamedTuple):
    """The commit is about to be sent. A reader that saw the transaction as committed before this line read too early.
    Without this line the checker demands nothing of the transaction."""

    at_ms: float
    who: str
    transaction: str


class TransactionCommitted(NamedTuple):
    at_ms: float
    who: str
    transaction: str


class TransactionAborted(NamedTuple):
    at_ms: float
    who: str
    transaction: str


class TransactionUnknown(NamedTuple):
    """The call to commit or to abort got no answer."""

    at_ms: float
    who: str
    transaction: str


class LogStartMoved(NamedTuple):
    """Records below the offset were deleted on purpose, by retention or by an administrator."""

    at_ms: float
    topic: str
    partition: int
    offset: int


class LeaderLost(NamedTuple):
    """The partition's leader lost its memory or its place: sends with acks=1 that began before this line may be
    gone."""

    at_ms: float
    topic: str
    partition: int


Event = (
    Producer
    | Reader
    | Send
    | Acked
    | Failed
    | Unknown
    | Positioned
    | Poll
    | Drained
    | TransactionBegun
    | TransactionCommitting
    | TransactionCommitted
    | TransactionAborted
    | TransactionUnknown
    | LogStartMoved
    | LeaderLost
)

NAMES: dict[type[Event], str] = {
    Producer: "producer",
    Reader: "reader",
    Send: "send",
    Acked: "acked",
    Failed: "failed",
    Unknown: "unknown",
    Positioned: "positioned",
    Poll: "poll",
    Drained: "drained",
    TransactionBegun: "transaction_begun",
    TransactionCommitting: "transaction_committing",
    TransactionCommitted: "transaction_committed",
    TransactionAborted: "transaction_aborted",
    TransactionUnknown: "transaction_unknown",
    LogStartMoved: "log_start_moved",
    LeaderLost: "leader_lost",
}

_TYPES: dict[str, type[Event]] = {name: kind for kind, name in NAMES.items()}


LATEST_MS = 253_402_300_799_000
"""The last second of the year 9999: later times have no date."""

MAX_OFFSET = 2**63 - 1


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LATEST_MS <= value <= LATEST_MS


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair, which JSON can write and no report can print.
        return False
    return True


def _is_natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_OFFSET


def _is_records(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(record, list) and len(record) == 2 and _is_natural(record[0]) and _is_text(record[1])
        for record in value
    )


_CHECKS: dict[str, tuple[Callable[[object], bool], str]] = {
    "at_ms": (_is_time, "a number of milliseconds up to the year 9999"),
    "who": (_is_text, "a text"),
    "topic": (_is_text, "a text"),
    "value": (_is_text, "a text"),
    "transaction": (_is_text, "a text"),
    "partition": (_is_natural, "a whole number from 0 to 2**63 - 1"),
    "offset": (_is_natural, "a whole number from 0 to 2**63 - 1"),
    "records": (_is_records, "a list of [offset, value]"),
    "acks": (lambda value: value in ("all", "1", "0"), 'one of "all", "1", "0"'),
    "idempotent": (lambda value: isinstance(value, bool), "true or false"),
    "retries": (lambda value: isinstance(value, bool), "true or false"),
    "mode": (lambda value: value in ("assign", "subscribe"), '"assign" or "subscribe"'),
    "isolation": (
        lambda value: value in ("read_committed", "read_uncommitted"),
        '"read_committed" or "read_uncommitted"',
    ),
    "start": (lambda value: value in ("earliest", "latest"), '"earliest" or "latest"'),
}

_MAY_BE_NULL: frozenset[tuple[type[Event], str]] = frozenset(
    {(Send, "transaction"), (Acked, "offset"), (Positioned, "offset")}
)


class _Field(NamedTuple):
    name: str
    fits: Callable[[object], bool]
    wanted: str
    may_be_null: bool


_FIELDS: dict[type[Event], tuple[_Field, ...]] = {
    kind: tuple(_Field(name, *_CHECKS[name], (kind, name) in _MAY_BE_NULL) for name in kind._fields) for kind in NAMES
}

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def write(event: Event) -> str:
    """The event as one line, without the newline."""
    return _encode({"type": NAMES[type(event)], **event._asdict()})


def parse(line: str | bytes) -> Event:
    """Parses the event on this line; InvalidHistory names the mistake."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidHistory(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidHistory("not a JSON object")
    name = fields.get("type")
    kind = _TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InvalidHistory(f"the type {name!r} is not one of {', '.join(_TYPES)}")
    values: list[Any] = []
    for name, fits, wanted, may_be_null in _FIELDS[kind]:
        value = fields.get(name)
        if value is None:
            if not may_be_null:
                raise InvalidHistory(f"a {fields['type']} needs {name!r}")
        elif not fits(value):
            raise InvalidHistory(f"{name!r} must be {wanted}, not {value!r}")
        values.append(value)
    if kind is Poll:
        values[-1] = tuple((offset, value) for offset, value in values[-1])
    return kind(*values)

"""Settings: name, type, default, bounds and meaning, and how text becomes a value.

A topic's settings are declared in topic_settings.py, a broker's in the files of their areas, which broker_settings.py
joins. The configuration reference in docs/ is generated from the tables.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import IntEnum
from typing import TYPE_CHECKING, TypedDict, Unpack

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = bool | int | float | str | tuple[str, ...]

LONGEST_TEXT = 32_767
"""The most bytes of a value's text: the limit of strings in the Kafka protocol."""


def has_no_room(text: str) -> bool:
    """True if a text has more bytes than a message has room for."""
    return len(text) > LONGEST_TEXT or (4 * len(text) > LONGEST_TEXT and len(text.encode()) > LONGEST_TEXT)


class Kind(IntEnum):
    """The type of a setting, numbered as DescribeConfigs reports it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


HIDDEN = "(hidden)"
"""Stands for a secret value wherever people read."""


class InvalidSetting(ValueError):
    """A setting does not take a value; the message names the setting, the value and valid values. Several mistakes that
    are found together are in `problems`, and are the lines of the message."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of a table of settings."""

    name: str
    kind: Kind
    default: Value
    meaning: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] | None = None
    check: Callable[[Value], str | None] | None = None
    """A check beyond bounds and choices: returns the reason why a value is refused, or None."""
    broker_name: str | None = None
    """For a topic's setting: the broker's setting that gives its default."""
    changeable: bool = True
    """True if the setting can be altered while the broker runs."""
    by_listener: bool = False
    """True if one listener may have a value of its own, as `listener.name.NAME.SETTING`."""

    @property
    def secret(self) -> bool:
        """True if the value is shown to nobody."""
        return self.kind is Kind.PASSWORD

    def shown(self, text: str) -> str:
        """The text of a value, for people."""
        return HIDDEN if self.secret and text else text

    def parse(self, text: str) -> Value:
        """The value of this text. Raises InvalidSetting."""
        text = text.strip()
        value: Value
        try:
            match self.kind:
                case Kind.BOOLEAN:
                    value = {"true": True, "false": False}[text.lower()]
                case Kind.INT | Kind.SHORT | Kind.LONG:
                    value = int(text)
                case Kind.DOUBLE:
                    value = float(text)
                case Kind.LIST:
                    value = tuple(part.strip() for part in text.split(",") if part.strip())
                case _:
                    value = text
        except (KeyError, ValueError):
            raise self._refused(text, f"expected {_ARTICLES[self.kind]}") from None
        self._check(text, value)
        return value

    def _check(self, text: str, value: Value) -> None:
        low, high = self.low, self.high
        limit = _LIMITS.get(self.kind)
        if limit is not None and isinstance(value, int) and not -limit - 1 <= value <= limit:
            raise self._refused(text, f"does not fit {_ARTICLES[self.kind]}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            if value != value or (low is not None and value < low):
                raise self._refused(text, f"must be at least {low:g}" if low is not None else "is not a number")
            if high is not None and value > high:
                raise self._refused(text, f"must be at most {high:g}")
        if self.choices is not None:
            for part in value if isinstance(value, tuple) else (value,):
                if part not in self.choices:
                    raise self._refused(text, f"must be one of {', '.join(self.choices)}")
        if self.check is not None and (reason := self.check(value)) is not None:
            raise self._refused(text, reason)

    def _refused(self, text: str, reason: str) -> InvalidSetting:
        return InvalidSetting(f"Invalid value {self.shown(text)} for configuration {self.name}: {reason}")

    def format(self, value: Value) -> str:
        """The text that parses back to this value."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


_LIMITS = {Kind.SHORT: 2**15 - 1, Kind.INT: 2**31 - 1, Kind.LONG: 2**63 - 1}
_ARTICLES = {
    Kind.BOOLEAN: "true or false",
    Kind.STRING: "a string",
    Kind.INT: "a 32-bit integer",
    Kind.SHORT: "a 16-bit integer",
    Kind.LONG: "a 64-bit integer",
    Kind.DOUBLE: "a number",
    Kind.LIST: "a comma-separated list",
    Kind.PASSWORD: "a text",
}


class Details(TypedDict, total=False):
    """The optional fields of `Setting`."""

    name: str
    """For a name that the attribute cannot have: one with a dash."""
    low: float
    high: float
    choices: tuple[str, ...]
    check: Callable[[Value], str | None]
    broker_name: str
    by_listener: bool


# A setting is declared once, as a field of a dataclass: `fetch_max_bytes: int = int32(57_671_680, "...", low=1024)`.
# The attribute, its default and the row of the table come from that line, so they cannot differ.


def boolean(default: bool, meaning: str, **details: Unpack[Details]) -> bool:
    return field(default=default, metadata={"kind": Kind.BOOLEAN, "meaning": meaning, **details})


def string(default: str, meaning: str, **details: Unpack[Details]) -> str:
    return field(default=default, metadata={"kind": Kind.STRING, "meaning": meaning, **details})


def password(meaning: str, **details: Unpack[Details]) -> str:
    """A secret text; an empty one is not set."""
    return field(default="", repr=False, metadata={"kind": Kind.PASSWORD, "meaning": meaning, **details})


def int16(default: int, meaning: str, **details: Unpack[Details]) -> int:
    return field(default=default, metadata={"kind": Kind.SHORT, "meaning": meaning, **details})


def int32(default: int, meaning: str, **details: Unpack[Details]) -> int:
    return field(default=default, metadata={"kind": Kind.INT, "meaning": meaning, **details})


def int64(default: int, meaning: str, **details: Unpack[Details]) -> int:
    return field(default=default, metadata={"kind": Kind.LONG, "meaning": meaning, **details})


def double(default: float, meaning: str, **details: Unpack[Details]) -> float:
    return field(default=default, metadata={"kind": Kind.DOUBLE, "meaning": meaning, **details})


def string_list(default: tuple[str, ...], meaning: str, **details: Unpack[Details]) -> tuple[str, ...]:
    return field(default=default, metadata={"kind": Kind.LIST, "meaning": meaning, **details})


def settings_of(declarations: "type[DataclassInstance]", *, changeable: bool) -> Iterator[Setting]:
    """The settings that a dataclass declares: the attribute `segment_bytes` is the setting `segment.bytes`."""
    for declared in fields(declarations):
        if "kind" in declared.metadata:
            assert declared.default is not MISSING
            details = {"name": declared.name.replace("_", "."), **declared.metadata}
            assert attribute_of(details["name"]) == declared.name
            yield Setting(default=declared.default, changeable=changeable, **details)


def attribute_of(name: str) -> str:
    """A setting's name as a Python attribute: `segment.bytes` is `segment_bytes`."""
    return name.replace(".", "_").replace("-", "_")


def table(rows: Iterable[Setting]) -> dict[str, Setting]:
    """The rows by name; no two may share one."""
    by_name: dict[str, Setting] = {}
    for row in rows:
        assert row.name not in by_name, row.name
        by_name[row.name] = row
    return by_name


def attribute_values(settings: Mapping[str, Setting], texts: Mapping[str, str]) -> dict[str, Value]:
    """Every setting's value, by the name of its attribute."""
    return {
        attribute_of(name): setting.parse(texts[name]) if name in texts else setting.default
        for name, setting in settings.items()
    }

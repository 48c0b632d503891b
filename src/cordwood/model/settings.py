"""What a setting is: its name, type, default, bounds and meaning, and how text becomes its value.

Tables of settings are in topic_settings.py and broker_settings.py; the configuration reference in docs/ is
generated from them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

Value = bool | int | float | str | tuple[str, ...]


class Kind(IntEnum):
    """The type of a setting, numbered as DescribeConfigs reports it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class InvalidSetting(ValueError):
    """A value that a setting does not take; the message names the setting, the value and what would be valid."""


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
    """What the bounds and choices cannot say: returns the reason why a value is refused."""
    broker_name: str | None = None
    """For a topic's setting: the broker's setting that gives its default."""
    changeable: bool = True
    """Whether it can be altered while the broker runs."""

    def parse(self, text: str) -> Value:
        """The value that this text stands for, or InvalidSetting."""
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
        return InvalidSetting(f"Invalid value {text} for configuration {self.name}: {reason}")

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
}


def table(rows: Iterable[Setting]) -> dict[str, Setting]:
    """The rows by name; no two may share one."""
    by_name: dict[str, Setting] = {}
    for row in rows:
        assert row.name not in by_name, row.name
        by_name[row.name] = row
    return by_name


def attribute_values(settings: Mapping[str, Setting], texts: Mapping[str, str]) -> dict[str, Value]:
    """Every setting's value, by the name it has as a Python attribute: `segment.bytes` is `segment_bytes`."""
    return {
        name.replace(".", "_"): setting.parse(texts[name]) if name in texts else setting.default
        for name, setting in settings.items()
    }

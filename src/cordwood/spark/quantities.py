"""Quantities as users write them in options: whole numbers, yes or no, times with units, sizes with units."""

import re
from typing import Final

_TIME_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_WITH_UNIT = re.compile(r"(\d+)\s*([a-z]*)\Z")


MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
"""What Kafka's protocol and settings have room for."""


def whole_number(text: str, *, at_least: int, at_most: int = MAX_LONG) -> int:
    try:
        number = int(text.strip())
    except ValueError:
        raise ValueError(f"expected a whole number, found {text!r}") from None
    if number < at_least:
        raise ValueError(f"expected {at_least} or more, found {number}")
    if number > at_most:
        raise ValueError(f"expected {at_most} or less, found {number}")
    return number


def yes_or_no(text: str) -> bool:
    said = text.strip().lower()
    if said not in ("true", "false"):
        raise ValueError(f"expected true or false, found {text!r}")
    return said == "true"


def one_of(text: str, choices: tuple[str, ...]) -> str:
    said = text.strip().lower()
    if said not in choices:
        raise ValueError(f"expected {' or '.join(choices)}, found {text!r}")
    return said


def duration_ms(text: str) -> int:
    """`15m`, `10s`, `500ms`; a bare number is milliseconds, as everywhere in Spark."""
    number, unit = _number_and_unit(text, "a time as 500ms, 10s, 15m, 2h or 1d")
    if unit and unit not in _TIME_UNITS_MS:
        raise ValueError(f"{unit!r} is not a unit of time in {text!r}: use ms, s, m, h or d")
    return number * _TIME_UNITS_MS.get(unit, 1)


def size_bytes(text: str) -> int:
    """`67108864`, `64m`, `64mb`, `1g`: powers of 1024, as everywhere in Spark."""
    number, unit = _number_and_unit(text, "a size as 67108864, 64m or 1g")
    if unit in ("kb", "mb", "gb", "tb"):
        unit = unit[0]
    if unit and unit not in _SIZE_UNITS:
        raise ValueError(f"{unit!r} is not a unit of size in {text!r}: use b, k, m, g or t")
    size = number * _SIZE_UNITS.get(unit, 1)
    if size < 1:
        raise ValueError("expected at least one byte")
    return size


def _number_and_unit(text: str, expected: str) -> tuple[int, str]:
    found = _WITH_UNIT.match(text.strip().lower())
    if found is None:
        raise ValueError(f"expected {expected}, found {text!r}")
    return int(found.group(1)), found.group(2)

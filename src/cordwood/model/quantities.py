"""Durations and sizes as people write and read them: `90s`, `1d`, `10GiB`. The one parser for settings, commands and
options, and the one form of counts, sizes and durations in sentences.

A number without a unit is in milliseconds or bytes, or in the unit of its setting's name.
"""

import re
from collections.abc import Iterable
from typing import Final

_TIME_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_SIZE_UNITS: Final = {
    "b": 1,
    **{
        unit: 1 << 10 * power
        for power, letter in enumerate("kmgt", start=1)
        for unit in (letter, f"{letter}b", f"{letter}ib")
    },
}
_NUMBER_AND_UNIT: Final = re.compile(r"(\d{1,1000})(?:\.(\d{1,100}))?\s*([a-z]*)\Z")

_TIME_SETTINGS_MS: Final = {".ms": 1, ".minutes": 60_000, ".hours": 3_600_000}
_SIZE_SETTINGS: Final = (".bytes", ".bytes.per.second", ".buffer.size")


def duration_ms(text: str) -> int:
    """Parses `500ms`, `10s`, `15m`, `2h`, `1d`, `1w`; a bare number is milliseconds. A ValueError shows valid texts."""
    number, parts, unit = _number_and_unit(text, "a time as 500ms, 10s, 15m, 2h or 1d")
    if unit and unit not in _TIME_UNITS_MS:
        raise ValueError(f"{unit!r} is not a unit of time in {text!r}: use ms, s, m, h, d or w")
    return _whole(number * _TIME_UNITS_MS.get(unit, 1), parts, text, "milliseconds")


def size_bytes(text: str) -> int:
    """Parses `67108864`, `64k`, `64KiB`, `10GiB`: every unit is a power of 1024. A ValueError shows valid texts."""
    number, parts, unit = _number_and_unit(text, "a size as 67108864, 64MiB or 10GiB")
    if unit and unit not in _SIZE_UNITS:
        raise ValueError(f"{unit!r} is not a unit of size in {text!r}: use B, KiB, MiB, GiB or TiB")
    return _whole(number * _SIZE_UNITS.get(unit, 1), parts, text, "bytes")


def in_plain_unit(setting: str, text: str) -> str:
    """The text of a setting as every broker takes it: a duration or a size in the unit that the setting's name has.

    Text without a unit, and that of other settings, stays as it is. Raises ValueError for a unit that does not fit.
    """
    if not text.strip()[:1].isdecimal() or not text.strip()[-1:].isalpha():
        return text
    if setting.endswith(_SIZE_SETTINGS):
        return str(size_bytes(text))
    for suffix, unit_ms in _TIME_SETTINGS_MS.items():
        if setting.endswith(suffix):
            number, rest = divmod(duration_ms(text), unit_ms)
            if rest:
                raise ValueError(f"{text} is no whole number of {suffix[1:]}")
            return str(number)
    return text


def _number_and_unit(text: str, expected: str) -> tuple[int, int, str]:
    """`1.5h` is 15, in tenths (10), and `h`."""
    found = _NUMBER_AND_UNIT.match(text.strip().lower())
    if found is None:
        raise ValueError(f"expected {expected}, found {text[:80]!r}")
    behind_point = found[2] or ""
    return int(found[1] + behind_point), 10 ** len(behind_point), found[3]


def _whole(number: int, parts: int, text: str, unit: str) -> int:
    if number % parts:
        raise ValueError(f"{text} is no whole number of {unit}")
    return number // parts


def size_in_words(size_bytes: int) -> str:
    """A size as text: 1536 is `1.5 KiB`."""
    size, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"


def count_in_words(count: int, noun: str) -> str:
    """A count as text: `1 record`, `2,000 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def ranges(numbers: Iterable[int]) -> str:
    """Sorted numbers as text: 0, 1, 2, 3 and 7 are `0-3, 7`."""
    parts: list[tuple[int, int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def duration_in_words(duration_ms: float) -> str:
    """A duration as text: `0 s`, `12 s`, `5 min`, `3.5 h`, `2.0 d`."""
    seconds = duration_ms / 1000
    for limit_s, unit_s, unit in ((120, 1, "s"), (7200, 60, "min")):
        if seconds < limit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} d"

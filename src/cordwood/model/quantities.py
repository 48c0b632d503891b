"""Durations and sizes as people write them: `90s`, `1d`, `10GiB`. The one parser for settings, commands and options.

A number without a unit is in milliseconds or bytes, or in the unit of its setting's name.
"""

import re
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

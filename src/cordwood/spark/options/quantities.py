"""Quantities as users write them in options: whole numbers, yes or no, sizes. Times are parsed in `model`."""

from typing import Final

from cordwood.model import quantities

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
"""The largest number in Kafka's protocol and settings."""


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


def size_bytes(text: str) -> int:
    """Parses `67108864`, `64m`, `1g`: at least one byte."""
    size = quantities.size_bytes(text)
    if size < 1:
        raise ValueError("expected at least one byte")
    return size

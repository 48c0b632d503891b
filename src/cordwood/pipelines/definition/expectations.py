"""Expectations: conditions that rows must meet, and what happens to rows that do not.

An expectation is a plain value. Only Spark can parse its condition, which happens before the first batch
(`rows/rules.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cordwood.pipelines.definition.errors import InvalidDefinition, Site, calling_site

_MAX_NAME_LENGTH: Final = 200
_SHOWN_LENGTH: Final = 60
"""A text that is told in an error is cut to this length."""


class Else(StrEnum):
    """What happens to a row that breaks a rule, the gravest first."""

    FAIL = "fail"
    QUARANTINE = "quarantine"
    DROP = "drop"


@dataclass(frozen=True)
class Expectation:
    """A rule. Rules of one name are one rule, wherever they are declared."""

    name: str
    condition: str
    else_: Else
    site: Site = field(compare=False)

    @property
    def error(self) -> str:
        """What is wrong with a row that breaks the rule."""
        condition = _in_one_line(self.condition)
        return f"breaks the rule {self.name}" + ("" if condition == self.name else f": {condition}")


def expect(condition: str, *, else_: str, name: str | None = None) -> Expectation:
    """Declares what rows of an input or an output are like: `expect("amount >= 0", else_="quarantine")`.

    `condition` is an SQL condition over the row's columns; a condition that is null is not met. Rows of tombstones have
    no columns to judge and are passed over. A row that does not meet it is left out and counted (`drop`), is left out
    with its whole record, which goes to quarantine (`quarantine`), or fails the batch, of which nothing is written
    (`fail`). The rule is known by `name`, or by its condition.
    """
    site = calling_site()
    if not isinstance(condition, str) or not condition.strip():
        raise InvalidDefinition(f"expect({condition!r}): no condition", site, "an SQL condition: 'amount >= 0'")
    if else_ not in list(Else):
        hint = f"else_= is {', '.join(repr(each.value) for each in Else)}"
        raise InvalidDefinition(f"expect({_shown(condition)}): else_={else_!r}", site, hint)
    if name is not None and not isinstance(name, str):
        raise InvalidDefinition(f"expect({_shown(condition)}): the name {name!r} is no text", site)
    known_by = _in_one_line(condition if name is None else name)
    if not known_by or len(known_by) > _MAX_NAME_LENGTH:
        hint = f"name='…', of 1 to {_MAX_NAME_LENGTH} characters"
        why = f"{_shown(known_by)}, of {len(known_by):,} characters, is too long for a rule's name"
        message = f"expect({_shown(condition)}): {why if known_by else 'the name is empty'}"
        raise InvalidDefinition(message, site, hint)
    return Expectation(known_by, condition, Else(else_), site)


def expectations(given: Expectation | Sequence[Expectation], declared: str, site: Site) -> tuple[Expectation, ...]:
    """The rules of one input or output, in the order in which a row is judged by them: the gravest first."""
    several: Any = (given,) if isinstance(given, Expectation) else given
    if isinstance(several, str) or not isinstance(several, Sequence):
        raise InvalidDefinition(f"{declared}: expect={given!r}", site, "expect=[expect('amount >= 0', else_='drop')]")
    for each in several:
        if not isinstance(each, Expectation):
            hint = "expect=[expect('amount >= 0', else_='drop')]"
            raise InvalidDefinition(f"{declared}: {each!r} is no expectation", site, hint)
    return tuple(sorted(several, key=lambda each: list(Else).index(each.else_)))


def _shown(text: str) -> str:
    """The beginning of a text, quoted."""
    return repr(text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 1]}…")


def _in_one_line(text: str) -> str:
    return " ".join(text.split())

"""Names of families and of their slots.

A family is a set of writers with one common decision. Its slots are ordinary transactional ids, `family:NAME/3`, which
only the family's coordinator gives out.
"""

import re
from typing import Final, NamedTuple

FAMILY_PREFIX: Final = "family:"
MAX_FAMILY_NAME_LENGTH: Final = 249
MAX_PLAN_BYTES: Final = 16 << 10
"""The longest plan that a decision keeps. A longer plan is kept as its digest only."""
MAX_PLAN_DIGEST_BYTES: Final = 32

_NAME: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_FAMILY_NAME_LENGTH}}}")
_SLOT: Final = re.compile(rf"{FAMILY_PREFIX}({_NAME.pattern})/(0|[1-9][0-9]{{0,8}})", re.ASCII)


class Slot(NamedTuple):
    family: str
    number: int


def is_family_name(name: str) -> bool:
    """True if a family may have this name. As in topic names there is no "/": a slot's id has one reading."""
    return _NAME.fullmatch(name) is not None


def is_reserved(transactional_id: str) -> bool:
    """True if the id is reserved for families, so that no producer may choose it."""
    return transactional_id.startswith(FAMILY_PREFIX)


def coordinator_key(family: str) -> str:
    """The key for FindCoordinator, with the key type of transactions: a family and its slots have one coordinator."""
    return FAMILY_PREFIX + family


def slot_id(family: str, number: int) -> str:
    """The transactional id of a slot."""
    return f"{FAMILY_PREFIX}{family}/{number}"


def slot_of(transactional_id: str) -> Slot | None:
    """The slot of a transactional id; None for the id of an ordinary producer."""
    if not transactional_id.startswith(FAMILY_PREFIX):
        return None
    found = _SLOT.fullmatch(transactional_id)
    return None if found is None else Slot(found[1], int(found[2]))

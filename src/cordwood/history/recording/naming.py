"""The text by which a history knows a record, and the meaning of clients' settings in a history."""

from collections.abc import Callable
from typing import Any

from cordwood.history.events import Acks, Start
from cordwood.history.recorder import Value

Identify = Callable[[Any, Any], Value]
"""Gives the name of a record, unique in its topic, from its key and value."""


def by_value(key: Any, value: Any) -> Value:
    """The value itself."""
    if not isinstance(value, str | bytes):
        raise TypeError(
            f"a history knows a record by a unique value of type bytes or str, not {type(value).__name__}: "
            "identify=, a function of key and value, gives the record another name"
        )
    return value


def acks_of(setting: Any) -> Acks:
    text = str(setting)
    if text in ("all", "-1"):
        return "all"
    return "0" if text == "0" else "1"


def start_of(setting: Any) -> Start:
    return "earliest" if str(setting) in ("earliest", "smallest", "beginning") else "latest"

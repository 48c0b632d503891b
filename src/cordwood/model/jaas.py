"""Kafka's text for a log-in, `sasl.jaas.config`: a module of Java's, with a user and a password."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"

_VALUE: Final = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"';=]+)"""
_LINE: Final = rf"\s*(?P<module>[\w.$]+)\s+required(?P<options>(?:\s+\w+\s*=\s*{_VALUE})*)\s*;\s*"
_OPTION: Final = rf"(\w+)\s*=\s*({_VALUE})"
_EXAMPLE: Final = f'{SCRAM_MODULE} required username="NAME" password="PASSWORD";'


class LogIn(NamedTuple):
    user: str
    password: str

    def __repr__(self) -> str:
        # A password must not get into a log.
        return f"LogIn({self.user!r})"


def parse_jaas(text: str) -> LogIn:
    """The user and the password of a log-in by SCRAM. Raises ValueError, whose text has no part of the line."""
    line = re.fullmatch(_LINE, text, re.DOTALL)
    if line is None:
        raise ValueError(f"must be of the form {_EXAMPLE}")
    if line["module"] != SCRAM_MODULE:
        raise ValueError(f"its module must be {SCRAM_MODULE}")
    options = {name: _plain(value) for name, value in re.findall(_OPTION, line["options"], re.DOTALL)}
    if not options.get("username") or not options.get("password"):
        raise ValueError(f"must have a username and a password: {_EXAMPLE}")
    return LogIn(options["username"], options["password"])


def jaas(user: str, password: str) -> str:
    """The text for a log-in by SCRAM."""
    return f"{SCRAM_MODULE} required username={_quoted(user)} password={_quoted(password)};"


def _plain(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)


def _quoted(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'

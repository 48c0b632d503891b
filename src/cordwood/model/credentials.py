"""What the cluster keeps of a user's password: salted keys by which the user proves it, and nothing that is one.

A user has keys for one or both mechanisms of SCRAM (RFC 5802, 7677). The same keys check the password of PLAIN.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384
"""Kafka's bounds. Clients compute as many rounds of a hash each time that they log in."""
DEFAULT_ITERATIONS: Final = 8192

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
"""A token of an identity provider (RFC 7628): the cluster keeps nothing of its users."""


class ScramMechanism(IntEnum):
    """A mechanism of SCRAM, numbered as on the wire."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return f"SCRAM-SHA-{self.name[4:]}"

    @property
    def hash_name(self) -> str:
        """The hash, by its name in `hashlib`."""
        return f"sha{self.name[4:]}"

    @property
    def key_bytes(self) -> int:
        """The size of each key, and of the hash."""
        return int(self.name[4:]) // 8


SCRAM_NAMES: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
"""The mechanisms of SCRAM, by the name that clients send."""
PASSWORD_MECHANISMS: Final = (PLAIN, *SCRAM_NAMES)
"""The mechanisms by which users of the cluster log in."""
SASL_MECHANISMS: Final = (*PASSWORD_MECHANISMS, OAUTHBEARER)
"""The mechanisms that a listener can take."""


class ScramKeys(NamedTuple):
    """The keys of a user for one mechanism."""

    iterations: int
    salt: bytes
    stored_key: bytes
    """The hash of the key that only a client which knows the password can compute."""
    server_key: bytes
    """The key by which the broker proves that it knows the user."""

    def __repr__(self) -> str:
        # Keys must not get into a log.
        return f"ScramKeys({self.iterations} iterations)"


UserKeys = Mapping[ScramMechanism, ScramKeys]
"""The keys of one user. A user without keys does not exist."""


class KeyShape(NamedTuple):
    """What a stranger sees of a user's keys. Made up keys of unknown users have the shapes of the users' keys."""

    iterations: int
    salt_bytes: int
    salt_is_text: bool
    """True if the salt has digits and lower-case letters alone, as Apache Kafka's tools make it."""


USUAL_SHAPE: Final = KeyShape(DEFAULT_ITERATIONS, 16, salt_is_text=False)
"""The shape of the keys that `cordwood user` makes."""
_TEXT: Final = re.compile(rb"[0-9a-z]+")


def shape_of(keys: ScramKeys) -> KeyShape:
    return KeyShape(keys.iterations, len(keys.salt), _TEXT.fullmatch(keys.salt) is not None)

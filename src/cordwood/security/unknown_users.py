"""Keys for users that do not exist: a stranger must not learn from the answers which users there are.

They look like the keys that users have, are the same at each attempt and at each broker, and no password fits them.
They are made from a secret that only brokers know.

Users' keys differ in their iterations and salts, by the tool that made them. Each shape is as frequent among unknown
names as among users: if all had the most frequent one, any other would tell a stranger that there is such a user.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from math import log
from typing import Final

from cordwood.model.credentials import KeyShape, ScramKeys, ScramMechanism

_LETTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def drawn_shape(secret: bytes, user: str, mechanism: ScramMechanism, shapes: Mapping[KeyShape, int]) -> KeyShape:
    """One of the shapes, by chance, as frequent as the users who have it. A name keeps its shape while the numbers
    stay, and nearly always when they change a little (weighted rendezvous hashing)."""

    def score(shape: KeyShape) -> float:
        drawn = int.from_bytes(_bytes(secret, f"shape {shape}", user, mechanism, 7)) + 1
        return log(drawn / (1 << 56)) / shapes[shape]

    return max(sorted(shapes), key=score)


def made_up_keys(secret: bytes, user: str, mechanism: ScramMechanism, shape: KeyShape) -> ScramKeys:
    salt = _bytes(secret, "salt", user, mechanism, shape.salt_bytes)
    if shape.salt_is_text:
        salt = bytes(_LETTERS[byte % len(_LETTERS)] for byte in salt)
    stored_key = _bytes(secret, "stored key", user, mechanism, mechanism.key_bytes)
    return ScramKeys(
        shape.iterations, salt, stored_key, _bytes(secret, "server key", user, mechanism, mechanism.key_bytes)
    )


def _bytes(secret: bytes, what: str, user: str, mechanism: ScramMechanism, count: int) -> bytes:
    made = b""
    while len(made) < count:
        text = f"{what} {len(made)} {mechanism.sasl_name} {user}".encode(errors="surrogatepass")
        made += hmac.digest(secret, text, "sha512")
    return made[:count]

"""Keys for users that do not exist: a stranger must not learn from the answers which users there are.

They look like the keys that most users have, are the same at each attempt and at each broker, and no password fits
them. They are made from a secret that only brokers know.
"""

from __future__ import annotations

import hmac
from typing import Final

from cordwood.model.credentials import KeyShape, ScramKeys, ScramMechanism

_LETTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


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

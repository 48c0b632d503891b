"""The keys of an identity provider (JWK set, RFC 7517), each with the algorithms for which it may be used.

A key says which algorithms it verifies; a token only chooses among these. So neither `none` nor an HMAC, whose key
would have to be a secret that the provider shares with its brokers, verifies anything.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from cordwood.security.exchange import UnknownKey

MOST_KEYS: Final = 256
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_BY_CURVE: Final = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
    "Ed448": ("EdDSA",),
}
ALGORITHMS: Final = (*_RSA, "ES256", "ES384", "ES512", "EdDSA")
_FEWEST_RSA_BITS: Final = 2048
_MOST_RSA_BITS: Final = 16_384
_LONGEST_NUMBER: Final = _MOST_RSA_BITS // 4
"""The most characters of a number in a key."""


class BadKeySet(Exception):
    """The bytes are no set of keys by which a signature could be verified."""


class VerifyingKey(NamedTuple):
    id: str | None
    algorithms: tuple[str, ...]
    key: Any
    """A public key of `cryptography`."""


class KeySet(NamedTuple):
    keys: tuple[VerifyingKey, ...] = ()
    skipped: tuple[str, ...] = ()
    """The reasons why other keys of the set are not used."""

    @property
    def ids(self) -> str:
        return ", ".join(sorted({str(key.id)[:60] if key.id is not None else "(no id)" for key in self.keys}))

    def find(self, key_id: str | None) -> VerifyingKey:
        """The key with this id. A token without an id has to be of the only key. Raises UnknownKey."""
        if key_id is None and len(self.keys) == 1:
            return self.keys[0]
        for key in self.keys:
            if key.id == key_id and key_id is not None:
                return key
        named = "the token names no key" if key_id is None else f"the key {key_id!r:.80} is unknown"
        raise UnknownKey(f"{named}; known are: {self.ids or 'none'}")


def parse_key_set(content: bytes) -> KeySet:
    """The keys of a JWK set. Raises BadKeySet."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadKeySet(f"it is not JSON ({str(error)[:100]})") from None
    found = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise BadKeySet('it is not a JWK set: a JSON object with a list "keys"')
    if len(found) > MOST_KEYS:
        raise BadKeySet(f"it has {len(found)} keys, more than {MOST_KEYS}")
    keys: list[VerifyingKey] = []
    skipped: list[str] = []
    for place, each in enumerate(found):
        try:
            keys.append(_key(each))
        except (_Skipped, PyJWTError, ValueError, TypeError, OverflowError, AttributeError) as reason:
            skipped.append(f"key {place}: {str(reason)[:100]}")
    if not keys:
        raise BadKeySet(f"it has no key that could be used ({'; '.join(skipped[:3]) or 'the list is empty'})")
    return KeySet(tuple(keys), tuple(skipped))


class _Skipped(Exception):
    """A key of the set is not used, for this reason."""


def _key(jwk: object) -> VerifyingKey:
    if not isinstance(jwk, dict):
        raise _Skipped("it is no JSON object")
    kind, use, wanted = jwk.get("kty"), jwk.get("use", "sig"), jwk.get("alg")
    able = _RSA if kind == "RSA" else _BY_CURVE.get(str(jwk.get("crv"))) if kind in ("EC", "OKP") else None
    if able is None:
        raise _Skipped(f"its type {kind!r:.20} signs no tokens that are taken here")
    if use != "sig" or "verify" not in jwk.get("key_ops", ["verify"]):
        raise _Skipped("it is not for signatures")
    if "d" in jwk:
        raise _Skipped("it has its private part: whoever reads the set can sign tokens")
    if wanted is not None and wanted not in able:
        raise _Skipped(f"its algorithm {wanted!r:.20} is not taken here")
    key_id = jwk.get("kid")
    if not isinstance(key_id, str | None):
        raise _Skipped("its id is no text")
    if any(len(str(jwk.get(name, ""))) > _LONGEST_NUMBER for name in ("n", "e", "x", "y")):
        raise _Skipped("it is too long")
    algorithms = able if wanted is None else (wanted,)
    key = PyJWK(jwk, algorithms[0]).key
    if kind == "RSA" and not _FEWEST_RSA_BITS <= key.key_size <= _MOST_RSA_BITS:
        raise _Skipped(f"it has {key.key_size} bits, and {_FEWEST_RSA_BITS} to {_MOST_RSA_BITS} are taken")
    return VerifyingKey(key_id, algorithms, key)

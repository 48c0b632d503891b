"""The secrets of delegation tokens: each is an HMAC of the token's id under the key of the cluster, as Apache Kafka has
it. A client logs in by SCRAM, with the base64 of this HMAC as its password.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import Final

from cordwood.model.credentials import MIN_ITERATIONS, ScramKeys, ScramMechanism
from cordwood.security.scram import make_keys

_FINGERPRINT: Final = b"the fingerprint of Cordwood's key of delegation tokens"
_SALT_BYTES: Final = 16


class TokenSecrets:
    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        # The key must not get into a log.
        return f"TokenSecrets({self.fingerprint})"

    @property
    def fingerprint(self) -> str:
        """A text by which brokers see whether they have the same key, and nobody learns the key."""
        return hmac.digest(self._key, _FINGERPRINT, "sha512").hex()[:32]

    def hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def keys_of(self, token_id: str, mechanism: ScramMechanism) -> ScramKeys:
        """The keys of a token for a mechanism, the same at every broker. Takes 1 ms or more, without the interpreter's
        lock. The iterations are the fewest that clients take: nobody can guess 64 random bytes."""
        secret = self.hmac_of(token_id)
        salt = hmac.digest(secret, f"salt for {mechanism.sasl_name}".encode(), "sha512")[:_SALT_BYTES]
        return make_keys(mechanism, password_of(secret), salt, MIN_ITERATIONS)


def password_of(secret: bytes) -> str:
    """The password by which a client logs in with a token."""
    return b64encode(secret).decode()

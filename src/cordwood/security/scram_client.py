"""SCRAM on the client's side (RFC 5802, 7677), without I/O: the broker's messages come in, the client's go out.

The client proves that it knows the password and does not tell it. The broker has to prove in turn that it knows the
user's keys: an exchange without this proof is not trusted, whatever else the broker says.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as NoBase64
from typing import Final, NamedTuple

from cordwood.model.credentials import MIN_ITERATIONS, ScramMechanism
from cordwood.security.scram import salted_password

MOST_ITERATIONS: Final = 1_000_000
"""About half a second of a processor. A broker that asks for more would only keep the client busy."""

_NO_CHANNEL_BINDING: Final = "n,,"
_CHALLENGE: Final = re.compile(r"r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=([1-9][0-9]{0,9})(?:,.*)?")
_REASON: Final = re.compile(r"[ -~]{1,100}")


class Untrusted(Exception):
    """The broker broke the protocol, or did not prove that it knows the user. The reason holds no secret."""


class Salting(NamedTuple):
    """How the broker has salted the user's password."""

    salt: bytes
    iterations: int


class ClientKeys(NamedTuple):
    """The keys of a password that was salted, by which a client logs in: as secret as the password."""

    client_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        # Keys must not get into a log.
        return "ClientKeys()"


def client_keys(mechanism: ScramMechanism, password: str, salting: Salting) -> ClientKeys:
    """Takes 1 ms or more, by the iterations, without the interpreter's lock."""
    salted = salted_password(mechanism, password, salting.salt, salting.iterations)
    client_key, server_key = (hmac.digest(salted, name, mechanism.hash_name) for name in (b"Client Key", b"Server Key"))
    return ClientKeys(client_key, server_key)


class ScramClient:
    """One exchange: `first`, then `challenged` and `final` for the broker's challenge, then `check` for its last
    message. Keys of a password hold for every exchange with the same salting."""

    def __init__(self, mechanism: ScramMechanism, user: str, nonce: str, *, by_token: bool = False) -> None:
        """`nonce` is for this exchange alone: nobody may foresee it. `by_token`: the user is the id of a delegation
        token."""
        self._mechanism = mechanism
        self._nonce = nonce
        extension = ",tokenauth=true" if by_token else ""
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}{extension}"
        self._challenge = ""
        self._whole_nonce = ""
        self._signature: bytes | None = None
        """The proof that the broker has to send; None: the client has not proved itself yet."""

    def first(self) -> bytes:
        return f"{_NO_CHANNEL_BINDING}{self._bare}".encode()

    def challenged(self, challenge: bytes) -> Salting:
        """Takes the broker's challenge. Raises Untrusted."""
        text = _text(challenge)
        _check_error(text)
        found = _CHALLENGE.fullmatch(text)
        if found is None:
            raise Untrusted("its challenge has no nonce, salt or iterations")
        nonce, salt, iterations = found[1], _from_base64(found[2]), int(found[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise Untrusted("its nonce does not continue the client's")
        if iterations < MIN_ITERATIONS:
            raise Untrusted(f"it asks for {iterations} iterations, and fewer than {MIN_ITERATIONS} protect no password")
        if iterations > MOST_ITERATIONS:
            raise Untrusted(f"it asks for {iterations} iterations, and a client computes at most {MOST_ITERATIONS}")
        self._challenge, self._whole_nonce = text, nonce
        return Salting(salt, iterations)

    def final(self, keys: ClientKeys) -> bytes:
        """The client's proof, by the keys of the challenge's salting."""
        assert self._challenge, "the broker has not asked"
        hash_name = self._mechanism.hash_name
        stored_key = hashlib.new(hash_name, keys.client_key).digest()
        without_proof = f"c={b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={self._whole_nonce}"
        message = f"{self._bare},{self._challenge},{without_proof}".encode()
        client_signature = hmac.digest(stored_key, message, hash_name)
        proof = bytes(one ^ other for one, other in zip(keys.client_key, client_signature, strict=True))
        self._signature = hmac.digest(keys.server_key, message, hash_name)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def check(self, outcome: bytes) -> None:
        """Takes the broker's last message. Raises Untrusted."""
        text = _text(outcome)
        _check_error(text)
        verifier = text.split(",", 1)[0]
        if self._signature is None or not verifier.startswith("v="):
            raise Untrusted("its last message is no proof that it knows the user")
        if not hmac.compare_digest(_from_base64(verifier[2:]), self._signature):
            raise Untrusted("its proof is wrong: it does not know the user, and may be somebody else")


def _check_error(text: str) -> None:
    if text.startswith("e="):
        reason = text[2:].split(",", 1)[0]
        raise Untrusted(f"it ended the exchange: {reason if _REASON.fullmatch(reason) else 'no readable reason'}")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Untrusted("its message is not UTF-8") from None


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (NoBase64, ValueError):
        raise Untrusted("a value of its message is not base64") from None

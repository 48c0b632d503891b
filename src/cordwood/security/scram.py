"""SCRAM on the broker's side (RFC 5802, 7677), without I/O: the client's messages come in, answers go out.

The broker proves that it knows the user, and the client proves that it knows the password; neither tells the other
anything that would help a listener to log in. Channel binding is not offered, as by Apache Kafka.

An unknown user gets the same two answers as a known one with a wrong password: `keys` of an unknown user have a salt
and an iteration count that look like those of a known one (`users.py`), and the same hashes are computed.

Passwords are used as their bytes in UTF-8, as by Apache Kafka and its clients: RFC 5802 would normalise them first.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as NoBase64
from collections.abc import Callable
from typing import Final, NamedTuple

from cordwood.model.credentials import ScramKeys, ScramMechanism
from cordwood.security.exchange import Challenge, DelegationClaim, Proof, Unproven

_TOKENAUTH: Final = "tokenauth"
"""Kafka's extension: the user name is the id of a delegation token."""

_GS2_FLAGS: Final = frozenset({"n", "y"})
"""The client does not support channel binding, or believes that the broker does not. `p=...` would demand it."""
_NONCE: Final = re.compile(r"[!-+\--~]+")
"""Printable ASCII without a comma."""
_EXTENSION: Final = re.compile(r"[A-Za-z]+=[^\0=,][^\0,]*")
_ESCAPES: Final = {"=2C": ",", "=3D": "="}


class Grant(NamedTuple):
    """The user as whom the holder of a delegation token acts, and until when."""

    user: str
    groups: tuple[str, ...]
    """Names, as an identity provider gave them."""
    ends_ms: int


class FoundKeys(NamedTuple):
    keys: ScramKeys
    is_known: bool
    """False: there is no such user or token, and the keys are made up."""
    grant: Grant | None = None
    """The keys are those of a delegation token; None: a user's."""


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes 1 to 40 ms, without the interpreter's lock."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(errors="surrogatepass"), salt, iterations)


def keys_of_salted(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramKeys:
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    return ScramKeys(iterations, salt, stored_key, _hmac(mechanism, salted, b"Server Key"))


def make_keys(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramKeys:
    return keys_of_salted(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def is_password(mechanism: ScramMechanism, password: str, found: FoundKeys) -> bool:
    """True if this is the user's password. Takes the time of `salted_password`, for every answer."""
    keys = found.keys
    made = make_keys(mechanism, password, keys.salt, keys.iterations)
    return hmac.compare_digest(made.stored_key, keys.stored_key) and found.is_known


class ScramExchange:
    """One exchange: the client's first message, then its final message. No third message is taken. Where the first one
    names a delegation token, the driver has to find the keys (`keyed`) before there is a challenge."""

    def __init__(self, mechanism: ScramMechanism, find: Callable[[str, ScramMechanism], FoundKeys], nonce: str) -> None:
        """`nonce` is the broker's part of the nonce: nobody may foresee it."""
        self.mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._first: ClientFirst | None = None
        self._asked: _Asked | None = None

    @property
    def user(self) -> str:
        """The user that the client says it is, or the id of its token; empty before its first message."""
        return "" if self._first is None else self._first.user

    def take(self, token: bytes) -> Challenge | DelegationClaim | Proof:
        """The answer to the client's next message. Raises Unproven."""
        text = _text(token)
        if self._first is None:
            first = self._first = parse_first(text)
            if first.by_token:
                return DelegationClaim(first.user, self.mechanism)
            return self._challenge(first, self._find(first.user, self.mechanism))
        assert self._asked is not None, "the keys have to be found before the next message is taken"
        return self._prove(self._asked, text)

    def keyed(self, found: FoundKeys) -> Challenge:
        """The answer to the client's first message, after the keys of its token were found."""
        assert self._first is not None
        assert self._asked is None
        return self._challenge(self._first, found)

    def _challenge(self, first: ClientFirst, found: FoundKeys) -> Challenge:
        nonce = first.nonce + self._nonce
        salt = b64encode(found.keys.salt).decode()
        challenge = f"r={nonce},s={salt},i={found.keys.iterations}"
        self._asked = _Asked(first, found, nonce, challenge)
        return Challenge(challenge.encode())

    def _prove(self, asked: _Asked, text: str) -> Proof:
        """The client's proof, and the broker's own for the client. Raises Unproven."""
        mechanism, keys = self.mechanism, asked.found.keys
        final = _parse_final(text)
        if final.binding != asked.first.gs2_header.encode():
            raise Unproven("the client's two messages differ in their channel binding")
        # librdkafka before 2.6.1 puts its own part of the nonce before the whole once more.
        if final.nonce not in (asked.nonce, asked.first.nonce + asked.nonce):
            raise Unproven("the nonce is not that of this exchange")
        if len(final.proof) != mechanism.key_bytes:
            raise Unproven(f"a proof of {mechanism.sasl_name} has {mechanism.key_bytes} bytes, not {len(final.proof)}")
        message = f"{asked.first.bare},{asked.challenge},{final.without_proof}".encode()
        signature = _hmac(mechanism, keys.stored_key, message)
        client_key = bytes(one ^ other for one, other in zip(final.proof, signature, strict=True))
        is_proven = hmac.compare_digest(hashlib.new(mechanism.hash_name, client_key).digest(), keys.stored_key)
        verifier = b64encode(_hmac(mechanism, keys.server_key, message))
        grant, last = asked.found.grant, b"v=" + verifier
        if not is_proven or not asked.found.is_known:
            if asked.first.by_token:
                raise Unproven(
                    "the secret of the delegation token is wrong, or the token is over, or there never was one"
                )
            raise Unproven("the password is wrong, or there is no such user")
        if asked.first.by_token:
            assert grant is not None
            return Proof(grant.user, last, grant.groups, grant.ends_ms, asked.first.user)
        return Proof(asked.first.user, last)


class ClientFirst(NamedTuple):
    """The client's first message."""

    gs2_header: str
    bare: str
    """The message without its header."""
    user: str
    nonce: str
    by_token: bool = False
    """The user name is the id of a delegation token."""


class _ClientFinal(NamedTuple):
    binding: bytes
    nonce: str
    without_proof: str
    proof: bytes


class _Asked(NamedTuple):
    """The client's first message and the broker's answer."""

    first: ClientFirst
    found: FoundKeys
    nonce: str
    challenge: str


def parse_first(text: str) -> ClientFirst:
    """`n,a=authzid,n=user,r=nonce,...`. Raises Unproven."""
    flag, authzid, *attributes = text.split(",", 2) if text.count(",") >= 2 else (text, "", "")
    bare = attributes[0]
    if flag.startswith("p="):
        raise Unproven("channel binding is not offered here")
    if flag not in _GS2_FLAGS or (authzid and not authzid.startswith("a=")):
        raise Unproven("the first message does not begin with a header of RFC 5802")
    if bare.startswith("m="):
        raise Unproven("the client demands an extension that is not known here")
    name, nonce, *extensions = bare.split(",") if "," in bare else (bare, "")
    if not name.startswith("n=") or not nonce.startswith("r=") or not _NONCE.fullmatch(nonce, 2):
        raise Unproven("the first message has no user name or no nonce")
    known = _check_extensions(extensions)
    user = _unescaped(name[2:])
    if not user:
        raise Unproven("the user name is empty")
    if authzid and _unescaped(authzid[2:]) not in ("", user):
        raise Unproven("the client requested an authorization id that is different from the user name")
    by_token = known.get(_TOKENAUTH, "").lower() == "true"
    return ClientFirst(f"{flag},{authzid},", bare, user, nonce[2:], by_token)


def _parse_final(text: str) -> _ClientFinal:
    """`c=binding,r=nonce,...,p=proof`. Raises Unproven."""
    without_proof, separator, proof = text.rpartition(",p=")
    binding, nonce, *extensions = without_proof.split(",") if "," in without_proof else ("", "")
    if not separator or not binding.startswith("c=") or not nonce.startswith("r="):
        raise Unproven("the final message has no channel binding, nonce or proof")
    _check_extensions(extensions)
    return _ClientFinal(_from_base64(binding[2:]), nonce[2:], without_proof, _from_base64(proof))


def _check_extensions(extensions: list[str]) -> dict[str, str]:
    """The extensions, by name. Nobody minds those that are not known, as RFC 5802 has it."""
    for extension in extensions:
        if not _EXTENSION.fullmatch(extension):
            raise Unproven("an extension is not NAME=VALUE")
    return dict(extension.split("=", 1) for extension in extensions)


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise Unproven("the message is not UTF-8") from None


def _unescaped(name: str) -> str:
    """A name in which `=2C` stands for a comma and `=3D` for `=`. Raises Unproven."""
    parts = re.split("(=2C|=3D)", name)
    if any("=" in part or "\0" in part for part in parts[::2]):
        raise Unproven("a name has a character that must be escaped")
    return "".join(_ESCAPES.get(part, part) for part in parts)


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (NoBase64, ValueError):
        raise Unproven("a value is not base64") from None


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)

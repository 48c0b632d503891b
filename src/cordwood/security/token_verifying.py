"""Is a token good, and whose is it? A signature by a known key, and claims as the rules of the listener ask for.

Runs in a thread: a signature takes 0.1 ms or more. The claims are read after the signature has been verified.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from jwt import PyJWS
from jwt.exceptions import PyJWTError

from cordwood.model.token_trust import TokenRules
from cordwood.security.exchange import Proof, TokenClaim, UnknownKey, Unproven
from cordwood.security.key_sets import ALGORITHMS, KeySet

MOST_GROUPS: Final = 256
"""A token with more is refused: a rule that denies a group must not be missed."""
LONGEST_NAME: Final = 255
_LATEST_S: Final = 253_370_764_800
"""The year 9999: times behind it are no times."""

_SIGNATURES: Final = PyJWS(algorithms=list(ALGORITHMS))
_Claims = Mapping[str, Any]


def verify(claim: TokenClaim, keys: KeySet, rules: TokenRules, now_s: float) -> Proof:
    """The user of a token, its groups and its end. Raises Unproven; UnknownKey if newer keys may verify the token."""
    claims = _signed_claims(claim.token, keys)
    ends_s = _time(claims, "exp")
    if ends_s is None:
        raise Unproven("the token has no end (exp)")
    if now_s >= ends_s + rules.skew_s:
        raise Unproven(f"the token expired at {_shown(ends_s)}")
    for name in ("nbf", "iat"):
        begins_s = _time(claims, name)
        # The broker's moment has milliseconds: a token that is younger than one would come from the future.
        if begins_s is not None and now_s < int(begins_s) - rules.skew_s:
            raise Unproven(f"the token is not valid before {_shown(begins_s)} ({name})")
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise Unproven(f"the issuer of the token is {claims.get('iss')!r:.200}, not {rules.issuer!r}")
    _check_audience(claims.get("aud"), rules)
    _names(claims, rules.scope_claim)
    user = claims.get(rules.user_claim)
    if not isinstance(user, str) or not _is_name(user):
        raise Unproven(f"the claim {rules.user_claim} has no name of a user: {user!r:.60}")
    if claim.user not in ("", user):
        raise Unproven("the client requested an authorization id that is different from the token's user")
    groups = _names(claims, rules.groups_claim) if rules.groups_claim else ()
    if len(groups) > MOST_GROUPS:
        raise Unproven(f"the token of {user!r} names {len(groups)} groups, more than {MOST_GROUPS}")
    if not all(map(_is_name, groups)):
        raise Unproven(f"a group of {user!r} has no name that is taken: empty, unprintable or too long")
    return Proof(user, b"", tuple(sorted(set(groups))), int((ends_s + rules.skew_s) * 1000))


def _signed_claims(token: str, keys: KeySet) -> _Claims:
    """The claims of a token whose signature is good. Raises Unproven."""
    try:
        header: _Claims = _SIGNATURES.get_unverified_header(token)
    except PyJWTError as error:
        raise Unproven(f"it is not a signed token (JWS): {str(error)[:100]}") from None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise Unproven(f"the token is signed by {algorithm!r:.20}; taken are {', '.join(ALGORITHMS)}")
    key = keys.find(key_id)
    if algorithm not in key.algorithms:
        raise Unproven(f"the token is signed by {algorithm}, and its key is for {', '.join(key.algorithms)}")
    try:
        payload = _SIGNATURES.decode_complete(token, key.key, algorithms=[algorithm])["payload"]
    except PyJWTError as error:
        # The provider may have another key by now: a token that names its key tells.
        failure = UnknownKey if key_id is None else Unproven
        raise failure(f"the signature is not that of the key {key.id!r:.80}: {str(error)[:100]}") from None
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        raise Unproven("the token has no claims in JSON") from None
    if not isinstance(claims, dict):
        raise Unproven("the claims of the token are no JSON object")
    return claims


def _check_audience(audience: object, rules: TokenRules) -> None:
    named = [audience] if isinstance(audience, str) else audience
    if rules.audiences and not (isinstance(named, list) and any(each in rules.audiences for each in named)):
        raise Unproven(f"the token is for {audience!r:.200}, not for {' or '.join(rules.audiences)}")


def _time(claims: _Claims, name: str) -> float | None:
    """A claim that is a time. Raises Unproven."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST_S:
        raise Unproven(f"the claim {name} is no time")
    return float(value)


def _names(claims: _Claims, name: str) -> tuple[str, ...]:
    """A claim that is a list of texts, or a text with spaces between them. Raises Unproven."""
    value = claims.get(name)
    if value is None:
        return ()
    names = value.split() if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise Unproven(f"the claim {name} is neither a text nor a list of texts")
    return tuple(names)


def _is_name(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and bool(text.strip())


def _shown(time_s: float) -> str:
    return datetime.fromtimestamp(int(time_s), UTC).isoformat()

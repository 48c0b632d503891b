"""Tokens: the message that brings one, the keys of signatures, and claims that the rules of a listener ask for."""

import base64
import hashlib
import hmac
import json
import time
from contextlib import suppress
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.identity_provider import AUDIENCE, ISSUER, USER, Provider, make_key, public_jwk
from tests.seeds import examples

from cordwood.model.token_trust import TokenRules
from cordwood.security.bearer import MOST_TOKEN_BYTES, parse_bearer
from cordwood.security.exchange import Proof, TokenClaim, UnknownKey, Unproven
from cordwood.security.key_sets import ALGORITHMS, BadKeySet, KeySet, parse_key_set
from cordwood.security.token_verifying import MOST_GROUPS, verify

RULES = TokenRules(ISSUER, (AUDIENCE, "other"), "sub", "groups", "scope", 30)
PROVIDER = Provider()
KEYS = parse_key_set(PROVIDER.key_set())


def proof(
    token: str, keys: KeySet = KEYS, rules: TokenRules = RULES, now_s: float | None = None, user: str = ""
) -> Proof:
    return verify(TokenClaim(token, user), keys, rules, time.time() if now_s is None else now_s)


def refusal(token: str, **more: Any) -> str:
    with pytest.raises(Unproven) as unproven:
        proof(token, **more)
    return str(unproven.value)


# The message


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=bearer a.b.c\x01\x01",
        b"y,a=alice,\x01auth=Bearer  a.b.c\x01\x01",
        b"n,,\x01host=broker\x01port=9092\x01auth=Bearer a.b.c\x01traceId=x y\x01\x01",
    ],
)
def test_a_message_has_one_token(message: bytes) -> None:
    claim = parse_bearer(message)
    assert claim.token == "a.b.c"
    assert claim.user == ("alice" if b"alice" in message else "")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "does not begin with a header"),
        (b"\x01", "does not begin with a header"),
        (b"p=tls-unique,,\x01auth=Bearer a\x01\x01", "channel binding"),
        (b"n,b=x,\x01auth=Bearer a\x01\x01", "does not begin with a header"),
        (b"n,,x\x01auth=Bearer a\x01\x01", "does not begin with a header"),
        (b"n,,\x01auth=Bearer a\x01", "no end"),
        (b"n,,\x01\x01", "no end"),
        (b"n,,\x01\x01\x01", "not NAME=VALUE"),
        (b"n,,\x01auth=Basic a\x01\x01", "no bearer token"),
        (b"n,,\x01auth=Bearer a b\x01\x01", "no bearer token"),
        (b"n,,\x01auth=Bearer \x01\x01", "no bearer token"),
        (b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01", "2 tokens"),
        (b"n,,\x01host=x\x01\x01", "0 tokens"),
        (b"n,,\x01auth=Bearer a\x01x\x01\x01", "not NAME=VALUE"),
        (b"\xff", "not UTF-8"),
        (b"n,,\x01auth=Bearer " + b"a" * (MOST_TOKEN_BYTES + 1) + b"\x01\x01", "more than 32768"),
        (b"n,,\x01auth=Bearer " + b"a" * 100_000 + b"\x01\x01", "more than 65536"),
    ],
)
def test_other_messages_are_refused(message: bytes, reason: str) -> None:
    with pytest.raises(Unproven, match=reason):
        parse_bearer(message)


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=80) | st.text("na=,\x01uthBerxy. ", max_size=60).map(str.encode))
def test_any_bytes_are_a_message_or_unproven(message: bytes) -> None:
    with suppress(Unproven):
        assert parse_bearer(message).token


def test_a_token_does_not_get_into_a_log() -> None:
    assert repr(TokenClaim("a.b.c", "alice")) == "TokenClaim('alice')"


# Signatures


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_is_verified_by_each_algorithm(algorithm: str) -> None:
    provider = Provider(algorithm)
    keys = parse_key_set(provider.key_set())
    assert proof(provider.token(), keys).user == USER
    other = Provider(algorithm)
    assert "the signature is not that of the key" in refusal(other.token(), keys=keys)


def test_a_token_that_is_altered_is_refused() -> None:
    header, claims, signature = PROVIDER.token().split(".")
    altered = json.loads(base64.urlsafe_b64decode(claims + "==")) | {"sub": "admin"}
    assert "signature" in refusal(f"{header}.{encoded(altered)}.{signature}")
    other_signature = PROVIDER.token("bob").rpartition(".")[2]
    assert "signature" in refusal(f"{header}.{claims}.{other_signature}")


def test_a_token_that_demands_an_extension_is_refused() -> None:
    assert "extension" in refusal(PROVIDER.sign(PROVIDER.claims(), crit=["exp"]))


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize("algorithm", ["none", "None", "nOnE", "", None, "HS256", "HS512", "ES256K", ["ES256"], {}])
def test_a_token_without_a_signature_of_a_key_pair_is_refused(algorithm: object) -> None:
    header = encoded({"alg": algorithm, "kid": PROVIDER.key_id, "typ": "JWT"})
    assert "is signed by" in refusal(f"{header}.{encoded(PROVIDER.claims())}.")


@pytest.mark.parametrize("content", ["pem", "der"])
def test_an_hmac_with_the_public_key_as_its_secret_is_refused(content: str) -> None:
    public = PROVIDER.keys[PROVIDER.key_id].public_key()
    encoding = Encoding.PEM if content == "pem" else Encoding.DER
    secret = public.public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{encoded({'alg': 'HS256', 'kid': PROVIDER.key_id})}.{encoded(PROVIDER.claims())}"
    signature = base64.urlsafe_b64encode(hmac.digest(secret, signed.encode(), hashlib.sha256)).decode().rstrip("=")
    assert "is signed by 'HS256'" in refusal(f"{signed}.{signature}")


def test_a_key_is_used_for_its_own_algorithms_alone() -> None:
    provider = Provider("RS256")
    token = provider.token()
    key = provider.keys[provider.key_id]
    for algorithm in ("PS256", "RS512"):
        keys = parse_key_set(json.dumps({"keys": [public_jwk(key, kid=provider.key_id, alg=algorithm)]}).encode())
        assert "its key is for" in refusal(token, keys=keys)
    any_of_its_type = parse_key_set(json.dumps({"keys": [public_jwk(key, kid=provider.key_id)]}).encode())
    assert proof(token, any_of_its_type).user == USER
    assert "its key is for RS256" in refusal(PROVIDER.token(), keys=parse_key_set(provider.key_set()))


def test_an_unknown_key_is_told_from_a_bad_signature() -> None:
    with pytest.raises(UnknownKey, match="'key-9' is unknown; known are: key-1"):
        proof(PROVIDER.sign(PROVIDER.claims(), kid="key-9"))
    with pytest.raises(UnknownKey, match="known are: none"):
        proof(PROVIDER.token(), KeySet())
    with pytest.raises(Unproven) as bad:
        proof(Provider().token())
    assert not isinstance(bad.value, UnknownKey)


def test_a_token_without_a_key_id_is_of_the_only_key() -> None:
    token = jwt.encode(PROVIDER.claims(), PROVIDER.keys[PROVIDER.key_id], "ES256")
    assert proof(token).user == USER
    two = Provider()
    two.rotate()
    with pytest.raises(UnknownKey, match="names no key"):
        proof(token, parse_key_set(two.key_set()))
    with pytest.raises(UnknownKey, match="the signature is not that"):
        proof(token, parse_key_set(Provider().key_set()))


@pytest.mark.parametrize(
    "token", ["", "a", "a.b", "a.b.c", "....", "e30.e30.e30", "[" * 1000 + ".e30.", "e30" * 10_000]
)
def test_what_is_no_token_is_refused(token: str) -> None:
    assert refusal(token)


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_no_change_of_a_token_proves_anything(data: st.DataObject) -> None:
    token = TOKEN
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("abcXYZ019-_.="))
    changed = data.draw(
        st.sampled_from([token[:place] + letter + token[place + 1 :], token[:place], token[:place] + token])
    )
    try:
        proved = proof(changed)
    except Unproven:
        return
    # Base64 has spare bits at its end: another text may have the same bytes.
    assert proved == proof(token)


TOKEN = PROVIDER.token()


# Claims


def test_the_user_the_groups_and_the_end_are_read() -> None:
    now_s = time.time()
    found = proof(PROVIDER.token(exp=int(now_s) + 100, groups=["traders", "all", "traders"]), now_s=now_s)
    assert found == Proof(USER, b"", ("all", "traders"), (int(now_s) + 130) * 1000)
    assert proof(PROVIDER.token(groups="b a")).groups == ("a", "b")
    assert proof(PROVIDER.token()).groups == ()
    assert proof(PROVIDER.token(name="bob"), rules=RULES._replace(user_claim="name", groups_claim="")).user == "bob"
    assert proof(PROVIDER.token(groups=5), rules=RULES._replace(groups_claim="")).groups == ()
    assert proof(PROVIDER.token(iss="x", aud="y"), rules=RULES._replace(issuer="", audiences=())).user == USER
    assert proof(PROVIDER.token(aud=["a", "other"])).user == USER
    assert proof(PROVIDER.token(), user=USER).user == USER


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": None}, "no end"),
        ({"exp": "tomorrow"}, "exp is no time"),
        ({"exp": True}, "exp is no time"),
        ({"exp": float("inf")}, "exp is no time"),
        ({"exp": float("nan")}, "exp is no time"),
        ({"exp": -1}, "exp is no time"),
        ({"exp": 10**400}, "exp is no time"),
        ({"lasts_s": -31}, "expired at"),
        ({"nbf": time.time() + 3600}, "not valid before"),
        ({"iat": time.time() + 3600}, "not valid before"),
        ({"nbf": []}, "nbf is no time"),
        ({"iss": "https://woods.example/"}, "the issuer of the token is"),
        ({"iss": None}, "the issuer of the token is None"),
        ({"iss": [ISSUER]}, "the issuer of the token is"),
        ({"aud": "billing"}, "the token is for 'billing', not for orders-log or other"),
        ({"aud": None}, "the token is for None"),
        ({"aud": []}, "the token is for"),
        ({"aud": [["orders-log"]]}, "the token is for"),
        ({"aud": {"orders-log": 1}}, "the token is for"),
        ({"user": ""}, "has no name of a user"),
        ({"sub": 5}, "has no name of a user"),
        ({"sub": None}, "has no name of a user"),
        ({"sub": "a\nb"}, "has no name of a user"),
        ({"sub": "a" * 256}, "has no name of a user"),
        ({"scope": 5}, "scope is neither a text nor a list"),
        ({"groups": {"a": 1}}, "groups is neither a text nor a list"),
        ({"groups": ["a", 5]}, "groups is neither a text nor a list"),
        ({"groups": [""]}, "a group of 'alice' has no name"),
        ({"groups": [str(number) for number in range(MOST_GROUPS + 1)]}, "names 257 groups, more than 256"),
    ],
)
def test_claims_that_the_rules_do_not_allow(claims: dict[str, Any], reason: str) -> None:
    assert reason in refusal(PROVIDER.token(**claims))


def test_clocks_may_differ_by_the_skew() -> None:
    now_s = float(int(time.time()))
    token = PROVIDER.token(iat=now_s, exp=now_s + 10)
    for at_s, is_good in [(-31, False), (-30, True), (39.5, True), (40, False)]:
        if is_good:
            assert proof(token, now_s=now_s + at_s).ends_ms == int(now_s + 40) * 1000
        else:
            assert refusal(token, now_s=now_s + at_s)


def test_a_token_may_be_younger_than_the_brokers_moment() -> None:
    now_s = float(int(time.time()))
    assert proof(PROVIDER.token(iat=now_s + 0.0009), rules=RULES._replace(skew_s=0), now_s=now_s).user == USER


def test_another_authorization_id_is_refused() -> None:
    assert "authorization id" in refusal(PROVIDER.token(), user="bob")


def test_claims_that_are_no_object_are_refused() -> None:
    key = PROVIDER.keys[PROVIDER.key_id]
    for payload in (b"[]", b"5", b"\xff", b"[" * 20_000):
        token = jwt.PyJWS().encode(payload, key, "ES256", {"kid": PROVIDER.key_id})
        assert "claims" in refusal(token)


# Sets of keys


def test_keys_that_cannot_be_used_are_skipped_with_their_reasons() -> None:
    weak = rsa.generate_private_key(65537, 1024)
    good = public_jwk(make_key("ES256"), kid="good")
    odd: list[object] = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "hmac"},
        public_jwk(weak, kid="weak"),
        public_jwk(make_key("ES256"), use="enc"),
        public_jwk(make_key("ES256"), alg="HS256"),
        public_jwk(make_key("ES256"), d="AAAA"),
        public_jwk(make_key("ES256"), kid=5),
        public_jwk(make_key("ES256"), x="AAAA"),
        public_jwk(make_key("ES256"), crv="secp256k1"),
        public_jwk(make_key("ES256"), key_ops=["sign"]),
        {**public_jwk(make_key("RS256")), "n": "A" * 10_000},
        {"kty": "RSA"},
        {"kty": "EC", "crv": "P-256", "x": 5, "y": []},
        {"kty": {}},
        "key",
        None,
    ]
    found = parse_key_set(json.dumps({"keys": [*odd, good]}).encode())
    assert found.ids == "good"
    assert len(found.skipped) == len(odd)
    assert "key 0: its type 'oct' signs no tokens" in found.skipped[0]
    assert "1024 bits" in found.skipped[1]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JWK set"),
        (b'{"keys": {}}', "not a JWK set"),
        (b'{"keys": []}', "the list is empty"),
        (b'{"keys": [5]}', "key 0: it is no JSON object"),
        (json.dumps({"keys": [{}] * 257}).encode(), "has 257 keys, more than 256"),
    ],
)
def test_what_is_no_set_of_keys_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(BadKeySet, match=reason):
        parse_key_set(content)

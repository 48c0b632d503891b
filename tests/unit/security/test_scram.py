"""SCRAM on the broker's side: the examples of the RFCs, and messages that nobody should send."""

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest

from cordwood.model.credentials import ScramKeys, ScramMechanism
from cordwood.security.exchange import Challenge, DelegationClaim, Proof, Unproven
from cordwood.security.scram import FoundKeys, Grant, ScramExchange, is_password, make_keys, parse_first

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
"""The salt, nonces and messages of RFC 7677, section 3."""
CLIENT_NONCE, BROKER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()
CHALLENGE = f"r={CLIENT_NONCE}{BROKER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r={CLIENT_NONCE}{BROKER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


GRANT = Grant("alice", ("traders",), 77)


def exchange(mechanism: ScramMechanism = SHA_256, *, is_known: bool = True) -> ScramExchange:
    keys = make_keys(mechanism, "pencil", SALT, 4096)
    return ScramExchange(mechanism, lambda user, _: FoundKeys(keys, is_known and user == "user"), BROKER_NONCE)


def final_message(
    mechanism: ScramMechanism,
    password: str,
    challenge: bytes,
    binding: bytes = b"n,,",
    user: str = "user",
    before_nonce: str = "",
    extensions: str = "",
) -> bytes:
    """The final message of a client that computes its proof by the RFC, in other words than ours."""
    fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
    digest = mechanism.hash_name
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", digest)
    bare = f"c={b64encode(binding).decode()},r={before_nonce}{fields['r']}"
    message = f"n={user},r={CLIENT_NONCE}{extensions},{challenge.decode()},{bare}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), message, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{bare},p={b64encode(proof).decode()}".encode()


def test_the_exchange_of_rfc_7677() -> None:
    server = exchange()
    assert server.take(FIRST) == Challenge(CHALLENGE)
    assert server.take(FINAL) == Proof("user", VERIFIER)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_client_with_the_password_is_proved_and_one_with_another_is_not(mechanism: ScramMechanism) -> None:
    for password, right in [("pencil", True), ("pencils", False), ("", False)]:
        server = exchange(mechanism)
        challenge = server.take(FIRST)
        assert isinstance(challenge, Challenge)
        final = final_message(mechanism, password, challenge.token)
        if right:
            assert isinstance(server.take(final), Proof)
        else:
            with pytest.raises(Unproven, match="password is wrong"):
                server.take(final)


def test_a_user_that_is_not_known_is_refused_with_the_right_password_for_the_made_up_keys() -> None:
    server = exchange(is_known=False)
    assert server.take(FIRST) == Challenge(CHALLENGE)
    with pytest.raises(Unproven, match="password is wrong, or there is no such user"):
        server.take(FINAL)


def test_a_user_name_may_have_a_comma_and_an_equals_sign() -> None:
    assert parse_first("n,,n=a=2Cb=3Dc,r=x").user == "a,b=c"


def test_a_client_that_believes_that_the_broker_has_no_channel_binding_is_taken() -> None:
    keys = make_keys(SHA_256, "pencil", SALT, 4096)
    server = ScramExchange(SHA_256, lambda user, _: FoundKeys(keys, is_known=True), BROKER_NONCE)
    challenge = server.take(b"y" + FIRST[1:])
    assert isinstance(challenge, Challenge)
    assert isinstance(server.take(final_message(SHA_256, "pencil", challenge.token, b"y,,")), Proof)


def test_a_client_may_repeat_its_part_of_the_nonce_as_old_librdkafkas_do() -> None:
    for before, is_taken in [(CLIENT_NONCE, True), (CLIENT_NONCE * 2, False), ("x", False)]:
        server = exchange()
        challenge = server.take(FIRST)
        assert isinstance(challenge, Challenge)
        final = final_message(SHA_256, "pencil", challenge.token, before_nonce=before)
        if is_taken:
            assert isinstance(server.take(final), Proof)
        else:
            with pytest.raises(Unproven, match="the nonce is not that of this exchange"):
                server.take(final)


def test_a_changed_header_shows_in_the_final_message() -> None:
    server = exchange()
    challenge = server.take(b"y" + FIRST[1:])
    assert isinstance(challenge, Challenge)
    with pytest.raises(Unproven, match="channel binding"):
        server.take(final_message(SHA_256, "pencil", challenge.token, b"n,,"))


def test_an_authorization_id_has_to_be_the_user() -> None:
    assert parse_first("n,a=user,n=user,r=x").gs2_header == "n,a=user,"
    with pytest.raises(Unproven, match="authorization id"):
        parse_first("n,a=other,n=user,r=x")


def test_extensions_are_skipped_but_for_that_of_delegation_tokens() -> None:
    assert not parse_first("n,,n=user,r=x,tokenauth=false,ext=1").by_token
    assert parse_first("n,,n=user,r=x,ext=1,tokenauth=True").by_token


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_the_holder_of_a_token_is_proved_as_its_owner(mechanism: ScramMechanism) -> None:
    keys = make_keys(mechanism, "the secret", SALT, 4096)
    for found, password, is_owner in [
        (FoundKeys(keys, is_known=True, grant=GRANT), "the secret", True),
        (FoundKeys(keys, is_known=True, grant=GRANT), "another", False),
        (FoundKeys(keys, is_known=False), "the secret", False),
    ]:
        server = exchange(mechanism)
        assert server.take(FIRST + b",tokenauth=true") == DelegationClaim("user", mechanism)
        final = final_message(mechanism, password, server.keyed(found).token, extensions=",tokenauth=true")
        if is_owner:
            proof = server.take(final)
            assert isinstance(proof, Proof)
            assert (proof.user, proof.groups, proof.ends_ms, proof.token_id) == ("alice", ("traders",), 77, "user")
        else:
            with pytest.raises(Unproven, match="delegation token"):
                server.take(final)


def test_a_final_message_without_the_extension_does_not_prove_a_token() -> None:
    """The extension is part of what the proof signs: nobody can add or drop it on the way."""
    server = exchange()
    server.take(FIRST + b",tokenauth=true")
    challenge = server.keyed(FoundKeys(make_keys(SHA_256, "secret", SALT, 4096), is_known=True, grant=GRANT))
    with pytest.raises(Unproven):
        server.take(final_message(SHA_256, "secret", challenge.token))


@pytest.mark.parametrize(
    "first",
    [
        "",
        "n",
        "n,,",
        "n,,n=user",
        "n,,n=user,r=",
        "n,,n=,r=x",
        "n,,r=x,n=user",
        "n,,m=must,n=user,r=x",
        "p=tls-unique,,n=user,r=x",
        "x,,n=user,r=x",
        "n,b=user,n=user,r=x",
        "n,,n=us=er,r=x",
        "n,,n=us=2cer,r=x",
        "n,,n=us\0er,r=x",
        "n,,n=user,r=a b",
        "n,,n=user,r=x,ext",
        "n,,n=user,r=x,=1",
        "n,,n=user,r=x,",
    ],
)
def test_a_first_message_that_no_client_sends_is_refused(first: str) -> None:
    with pytest.raises(Unproven):
        exchange().take(first.encode())


@pytest.mark.parametrize(
    "final",
    [
        b"",
        FINAL[:20],
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"c=biws", b"c=!"),
        FINAL.replace(b"r=rOpr", b"r=rOps"),
        FINAL.replace(b",p=", b",q="),
        FINAL[:-2],
        FINAL + b"=",
        FINAL[:-8] + b"AAAAAAA=",
        FINAL.replace(b",p=", b",p=AAAA"),
        FINAL.replace(b"p=d", b"p=e"),
        FINAL + b",ext=1",
        FIRST,
        CHALLENGE,
        b"\xff" + FINAL,
    ],
)
def test_a_final_message_that_proves_nothing_is_refused(final: bytes) -> None:
    server = exchange()
    server.take(FIRST)
    with pytest.raises(Unproven):
        server.take(final)


def test_a_final_message_of_another_exchange_is_refused() -> None:
    keys = make_keys(SHA_256, "pencil", SALT, 4096)
    server = ScramExchange(SHA_256, lambda *_: FoundKeys(keys, is_known=True), "another")
    server.take(FIRST)
    with pytest.raises(Unproven, match="not that of this exchange"):
        server.take(FINAL)


def test_the_password_is_checked_against_the_same_keys() -> None:
    for mechanism in ScramMechanism:
        found = FoundKeys(make_keys(mechanism, "pencil", SALT, 4096), is_known=True)
        assert is_password(mechanism, "pencil", found)
        assert not is_password(mechanism, "Pencil", found)
        assert not is_password(mechanism, "pencil", found._replace(is_known=False))


def test_keys_have_the_size_of_their_hash_and_do_not_show_in_a_log() -> None:
    for mechanism, size in [(SHA_256, 32), (SHA_512, 64)]:
        keys = make_keys(mechanism, "pencil", SALT, 4096)
        assert len(keys.stored_key) == len(keys.server_key) == size == mechanism.key_bytes
    assert repr(ScramKeys(4096, b"salt", b"stored", b"server")) == "ScramKeys(4096 iterations)"

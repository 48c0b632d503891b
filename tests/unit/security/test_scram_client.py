"""SCRAM on the client's side: the example of RFC 7677, the broker's side of ours, and brokers that are not trusted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.model.credentials import ScramMechanism
from cordwood.security.exchange import Challenge, Proof, Unproven
from cordwood.security.scram import FoundKeys, ScramExchange, make_keys
from cordwood.security.scram_client import MOST_ITERATIONS, ScramClient, Untrusted, client_keys

NONCE, BROKER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
CHALLENGE = f"r={NONCE}{BROKER_NONCE},s={SALT},i=4096".encode()
FINAL = f"c=biws,r={NONCE}{BROKER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
"""The messages of RFC 7677, section 3."""


def client(mechanism: ScramMechanism = ScramMechanism.SHA_256, user: str = "user") -> ScramClient:
    return ScramClient(mechanism, user, NONCE)


def answer(one: ScramClient, challenge: bytes, mechanism: ScramMechanism, password: str = "pencil") -> bytes:
    return one.final(client_keys(mechanism, password, one.challenged(challenge)))


def test_the_exchange_of_rfc_7677() -> None:
    one = client()
    assert one.first() == f"n,,n=user,r={NONCE}".encode()
    assert answer(one, CHALLENGE, ScramMechanism.SHA_256) == FINAL
    one.check(VERIFIER)


names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(user=names, password=names, mechanism=st.sampled_from(ScramMechanism))
def test_both_sides_of_ours_prove_each_other_whatever_the_names(
    user: str, password: str, mechanism: ScramMechanism
) -> None:
    keys = make_keys(mechanism, password, b"salt", 4096)
    broker = ScramExchange(mechanism, lambda found, _: FoundKeys(keys, found == user), BROKER_NONCE)
    one = client(mechanism, user)
    challenge = broker.take(one.first())
    assert isinstance(challenge, Challenge)
    proof = broker.take(answer(one, challenge.token, mechanism, password))
    assert isinstance(proof, Proof)
    assert proof.user == user
    one.check(proof.token)


def test_the_broker_refuses_another_password() -> None:
    keys = make_keys(ScramMechanism.SHA_256, "another", b"salt", 4096)
    broker = ScramExchange(ScramMechanism.SHA_256, lambda *_: FoundKeys(keys, True), BROKER_NONCE)
    one = client()
    challenge = broker.take(one.first())
    assert isinstance(challenge, Challenge)
    with pytest.raises(Unproven, match="password is wrong"):
        broker.take(answer(one, challenge.token, ScramMechanism.SHA_256))


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (CHALLENGE.replace(b"i=4096", b"i=4095"), "fewer than 4096"),
        (CHALLENGE.replace(b"i=4096", f"i={MOST_ITERATIONS + 1}".encode()), "at most 1000000"),
        (CHALLENGE.replace(b"i=4096", b"i=0"), "no nonce, salt or iterations"),
        (CHALLENGE.replace(b"i=4096", b"i=" + b"9" * 5000), "no nonce, salt or iterations"),
        (CHALLENGE.replace(NONCE.encode(), b"another"), "does not continue"),
        (f"r={NONCE},s={SALT},i=4096".encode(), "does not continue"),
        (CHALLENGE.replace(SALT.encode(), b"==="), "not base64"),
        (b"", "no nonce"),
        (b"\xff", "not UTF-8"),
        (b"m=later," + CHALLENGE, "no nonce"),
        (b"e=other-error", "ended the exchange: other-error"),
        (b"e=\x1b[31m", "no readable reason"),
    ],
)
def test_a_challenge_that_no_honest_broker_sends_is_not_answered(challenge: bytes, reason: str) -> None:
    with pytest.raises(Untrusted, match=reason) as refused:
        client().challenged(challenge)
    assert "pencil" not in str(refused.value)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (b"v=" + b"A" * 43 + b"=", "does not know the user"),
        (b"v=", "does not know the user"),
        (b"v=!", "not base64"),
        (b"", "no proof"),
        (b"e=invalid-proof", "invalid-proof"),
    ],
)
def test_a_broker_that_does_not_prove_that_it_knows_the_user_is_not_trusted(outcome: bytes, reason: str) -> None:
    one = client()
    answer(one, CHALLENGE, ScramMechanism.SHA_256)
    with pytest.raises(Untrusted, match=reason):
        one.check(outcome)


def test_a_proof_before_the_challenge_is_none() -> None:
    with pytest.raises(Untrusted, match="no proof"):
        client().check(VERIFIER)


def test_kept_keys_serve_every_exchange_and_show_nothing() -> None:
    keys = client_keys(ScramMechanism.SHA_256, "pencil", client().challenged(CHALLENGE))
    for _ in range(2):
        one = client()
        one.challenged(CHALLENGE)
        assert one.final(keys) == FINAL
        one.check(VERIFIER)
    assert repr(keys) == "ClientKeys()"

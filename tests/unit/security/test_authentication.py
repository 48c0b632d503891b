"""The authentication of one connection: the order of its messages, and who may prove what again."""

import pytest
from tests.unit.security.test_scram import BROKER_NONCE, CHALLENGE, FINAL, FIRST, SALT, VERIFIER

from cordwood.model.credentials import SASL_MECHANISMS, ScramMechanism
from cordwood.model.errors import ErrorCode
from cordwood.security.authentication import Authentication, Refused, Stage
from cordwood.security.exchange import Challenge, PasswordClaim, Proof, TokenClaim, Unproven
from cordwood.security.scram import FoundKeys, is_password, make_keys

SHA_256 = "SCRAM-SHA-256"
KEYS = {mechanism: make_keys(mechanism, "pencil", SALT, 4096) for mechanism in ScramMechanism}


def find(user: str, mechanism: ScramMechanism) -> FoundKeys:
    return FoundKeys(KEYS[mechanism], user == "user")


def connection(*mechanisms: str) -> Authentication:
    return Authentication("connection 1", mechanisms or SASL_MECHANISMS, find)


def proven(by: str = SHA_256) -> Authentication:
    peer = connection()
    prove(peer, by)
    return peer


def prove(peer: Authentication, by: str = SHA_256) -> Proof:
    peer.choose(by, BROKER_NONCE)
    if by == "PLAIN":
        assert isinstance(peer.take(b"\0user\0pencil"), PasswordClaim)
        return peer.checked(is_password=True)
    assert peer.take(FIRST) == Challenge(CHALLENGE)
    proof = peer.take(FINAL)
    assert isinstance(proof, Proof)
    return proof


def test_a_peer_proves_its_user_by_scram() -> None:
    peer = connection()
    assert prove(peer) == Proof("user", VERIFIER)
    assert (peer.stage, peer.user, peer.mechanism) == (Stage.PROVEN, "user", SHA_256)


def test_a_peer_proves_its_user_by_plain() -> None:
    peer = connection()
    assert prove(peer, "PLAIN") == Proof("user", b"")
    assert (peer.stage, peer.user, peer.mechanism) == (Stage.PROVEN, "user", "PLAIN")


def test_a_wrong_password_and_an_unknown_user_get_the_same_answers() -> None:
    told = set()
    for first, final in [(FIRST, FINAL.replace(b"p=d", b"p=e")), (FIRST.replace(b"user", b"nono"), FINAL)]:
        peer = connection()
        peer.choose(SHA_256, BROKER_NONCE)
        assert peer.take(first) == Challenge(CHALLENGE)
        with pytest.raises(Refused) as refusal:
            peer.take(final)
        told.add((refusal.value.code, refusal.value.message))
        assert (peer.stage, peer.user) == (Stage.ENDED, None)
    message = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    assert told == {(ErrorCode.SASL_AUTHENTICATION_FAILED, message)}


def test_a_wrong_password_of_plain_is_refused_with_the_message_of_kafka() -> None:
    peer = connection()
    peer.choose("PLAIN", BROKER_NONCE)
    claim = peer.take(b"\0user\0pen")
    assert isinstance(claim, PasswordClaim)
    right = is_password(ScramMechanism.SHA_256, claim.password, find(claim.user, ScramMechanism.SHA_256))
    with pytest.raises(Refused) as refusal:
        peer.checked(is_password=right)
    assert refusal.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refusal.value.message == "Authentication failed: Invalid username or password"


@pytest.mark.parametrize(
    "token", [b"", b"user\0pencil", b"\0user\0pen\0cil", b"\0\0pencil", b"\0user\0", b"x\0user\0pencil", b"\0\xff\0x"]
)
def test_a_message_of_plain_that_no_client_sends_is_refused(token: bytes) -> None:
    peer = connection()
    peer.choose("PLAIN", BROKER_NONCE)
    with pytest.raises(Refused, match="PLAIN failed"):
        peer.take(token)
    assert peer.stage is Stage.ENDED


def test_a_password_does_not_show_in_a_log() -> None:
    assert repr(PasswordClaim("user", "pencil")) == "PasswordClaim('user')"


@pytest.mark.parametrize("mechanism", ["GSSAPI", "SCRAM-SHA-256-PLUS", "", "plain"])
def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(mechanism: str) -> None:
    peer = connection(SHA_256, "PLAIN")
    with pytest.raises(Refused) as refusal:
        peer.choose(mechanism, BROKER_NONCE)
    assert refusal.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert "SCRAM-SHA-256, PLAIN" in refusal.value.message


BEARER = b"n,,\x01auth=Bearer a.b.c\x01\x01"


def with_token(peer: Authentication) -> Authentication:
    """The peer, with a token that is being checked."""
    peer.choose("OAUTHBEARER", BROKER_NONCE)
    assert peer.take(BEARER) == TokenClaim("a.b.c", "")
    assert peer.stage is Stage.CHECKING
    return peer


def test_a_peer_proves_its_user_by_a_token() -> None:
    peer = with_token(connection())
    assert peer.verified(Proof("user", b"", ("traders",), 5)) == Proof("user", b"", ("traders",), 5)
    assert (peer.stage, peer.user, peer.mechanism) == (Stage.PROVEN, "user", "OAUTHBEARER")
    assert with_token(peer).verified(Proof("user", b"", (), 9)) == Proof("user", b"", (), 9)
    with pytest.raises(Refused, match="Cannot change principals"):
        with_token(peer).verified(Proof("other", b""))


@pytest.mark.parametrize("answer", [b"\x01", b"", BEARER])
def test_a_token_that_is_not_taken_is_refused_after_one_more_message(answer: bytes) -> None:
    peer = with_token(connection())
    assert peer.verified(Unproven("the token expired")) == Challenge(b'{"status":"invalid_token"}')
    assert peer.stage.name == "REJECTED"
    with pytest.raises(Refused) as refusal:
        peer.take(answer)
    assert refusal.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refusal.value.message == '{"status":"invalid_token"}'
    assert refusal.value.reason == "OAUTHBEARER failed: the token expired"
    assert peer.stage is Stage.ENDED


def test_a_peer_whose_token_is_not_taken_cannot_begin_anew() -> None:
    peer = with_token(connection())
    peer.verified(Unproven("the token expired"))
    with pytest.raises(Refused, match="another mechanism"):
        peer.choose("PLAIN", BROKER_NONCE)


def test_a_message_without_a_token_is_refused_at_once() -> None:
    peer = connection()
    peer.choose("OAUTHBEARER", BROKER_NONCE)
    with pytest.raises(Refused) as refusal:
        peer.take(b"\0user\0pencil")
    message = "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
    assert refusal.value.message == message


def test_messages_out_of_order_end_the_authentication() -> None:
    peer = connection()
    with pytest.raises(Refused, match="without a SaslHandshake") as refusal:
        peer.take(FIRST)
    assert refusal.value.code is ErrorCode.ILLEGAL_SASL_STATE
    with pytest.raises(Refused):
        peer.choose(SHA_256, BROKER_NONCE)
    peer = connection()
    peer.choose(SHA_256, BROKER_NONCE)
    with pytest.raises(Refused, match="another mechanism"):
        peer.choose("PLAIN", BROKER_NONCE)
    peer = proven()
    with pytest.raises(Refused, match="without a SaslHandshake"):
        peer.take(FIRST)


def test_a_peer_proves_its_user_again() -> None:
    for mechanism in (SHA_256, "PLAIN"):
        peer = proven(mechanism)
        assert prove(peer, mechanism).user == "user"


def test_a_peer_cannot_become_another_user() -> None:
    peer = Authentication("connection 1", SASL_MECHANISMS, lambda user, of: FoundKeys(KEYS[of], is_known=True))
    prove(peer, "PLAIN")
    peer.choose("PLAIN", BROKER_NONCE)
    peer.take(b"\0other\0pencil")
    with pytest.raises(Refused, match="Cannot change principals") as refusal:
        peer.checked(is_password=True)
    assert refusal.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert peer.stage is Stage.ENDED


def test_a_peer_cannot_change_its_mechanism() -> None:
    peer = proven()
    peer.choose("PLAIN", BROKER_NONCE)
    with pytest.raises(Refused, match="not supported for re-authentication of mechanism 'SCRAM-SHA-256'"):
        peer.take(b"\0user\0pencil")


def test_a_peer_that_fails_to_prove_its_user_again_is_told_so() -> None:
    peer = proven()
    peer.choose(SHA_256, BROKER_NONCE)
    peer.take(FIRST)
    with pytest.raises(Refused) as refusal:
        peer.take(FINAL.replace(b"p=d", b"p=e"))
    assert "during re-authentication due to invalid credentials" in refusal.value.message


def test_each_exchange_has_its_own_nonce() -> None:
    peer = connection()
    prove(peer)
    peer.choose(SHA_256, "another")
    peer.take(FIRST)
    with pytest.raises(Refused, match="not that of this exchange"):
        peer.take(FINAL)

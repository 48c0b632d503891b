"""SASL messages in every order: without the password nobody is proved, and each move is one that the table allows."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.security.test_scram import CLIENT_NONCE, FINAL, SALT, final_message

from cordwood.model.credentials import SASL_MECHANISMS, SCRAM_NAMES, ScramMechanism
from cordwood.security.authentication import AUTHENTICATION_MOVES, Authentication, Refused, Stage
from cordwood.security.exchange import Challenge, DelegationClaim, PasswordClaim, Proof, TokenClaim, Unproven
from cordwood.security.scram import FoundKeys, Grant, is_password, make_keys

KEYS = {mechanism: make_keys(mechanism, "pencil", SALT, 4096) for mechanism in ScramMechanism}
PASSWORDS = {"user": "pencil", "other": "pencil"}


def find(user: str, mechanism: ScramMechanism) -> FoundKeys:
    return FoundKeys(KEYS[mechanism], user in PASSWORDS)


class Peer:
    """Speaks with a connection, and remembers whether it has used the password since it chose the mechanism."""

    def __init__(self, password: str) -> None:
        self.password = password
        self.at_broker = Authentication("connection 1", SASL_MECHANISMS, find)
        self.challenges = [Challenge(FINAL)]
        self.nonces = 0
        self.seen = {Stage.BEGINNING}
        self.claimed = DelegationClaim("", ScramMechanism.SHA_256)
        self.by_token = False

    def send(self, action: Callable[[], object]) -> None:
        before, user = self.at_broker.stage, self.at_broker.user
        try:
            action()
        except Refused:
            assert self.at_broker.stage is Stage.ENDED
        after = self.at_broker.stage
        if after is not before:
            AUTHENTICATION_MOVES.moved("a connection", before, after)
        assert user in (None, self.at_broker.user), "a connection never changes its user"
        self.seen.add(after)

    def choose(self, mechanism: str) -> None:
        self.nonces += 1
        self.send(lambda: self.at_broker.choose(mechanism, f"broker{self.nonces}"))

    def take(self, token: bytes) -> None:
        def act() -> None:
            step = self.at_broker.take(token)
            if isinstance(step, Challenge):
                self.challenges.append(step)
            elif isinstance(step, DelegationClaim):
                self.claimed = step

        self.send(act)

    def check(self) -> None:
        """The broker checks the password of PLAIN or the token, or finds the keys of a delegation token, as soon as its
        turn comes. In this world a good token is the password and the user; the id of a delegation token is its owner's
        name, and its secret the password."""
        if self.at_broker.stage is Stage.KEYING:
            owner, mechanism = self.claimed
            found = FoundKeys(KEYS[mechanism], owner in PASSWORDS, Grant(owner, (), 1))
            self.send(lambda: self.challenges.append(self.at_broker.keyed(found)))
            return
        match self.at_broker._claim:
            case PasswordClaim(user, password):
                right = is_password(ScramMechanism.SHA_256, password, find(user, ScramMechanism.SHA_256))
                self.send(lambda: self.at_broker.checked(is_password=right))
            case TokenClaim(token):
                password, _, user = token.partition(".")
                is_good = PASSWORDS.get(user) == password
                self.send(lambda: self.at_broker.verified(Proof(user, b"") if is_good else Unproven("not taken")))

    def final(self, mechanism: ScramMechanism, back: int) -> None:
        challenge = self.challenges[-1 - back % len(self.challenges)].token
        if b"s=" in challenge:
            extensions = ",tokenauth=true" if self.by_token else ""
            self.take(final_message(mechanism, self.password, challenge, extensions=extensions))


users = st.sampled_from(["user", "other", "nobody"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("choose"), st.sampled_from([*SASL_MECHANISMS, "GSSAPI"])),
        st.tuples(st.just("first"), users),
        st.tuples(st.just("token"), users),
        st.tuples(st.just("final"), st.tuples(st.sampled_from(list(SCRAM_NAMES)), st.integers(0, 3))),
        st.tuples(st.just("plain"), users),
        st.tuples(st.just("bearer"), users),
        st.tuples(st.just("check"), st.none()),
        st.tuples(st.just("bytes"), st.binary(max_size=40)),
        st.tuples(st.just("bytes"), st.sampled_from([FINAL, b"v=AAAA", b"n,,n=user,r=x", b"\0user\0", b"user"])),
    ),
    max_size=12,
)


def play(peer: Peer, schedule: list[tuple[str, object]]) -> None:
    for action, what in schedule:
        match action, what:
            case "choose", str(mechanism):
                peer.choose(mechanism)
            case "first", str(user):
                peer.by_token = False
                peer.take(f"n,,n={user},r={CLIENT_NONCE}".encode())
            case "token", str(user):
                peer.by_token = True
                peer.take(f"n,,n={user},r={CLIENT_NONCE},tokenauth=true".encode())
            case "final", (str(mechanism), int(back)):
                peer.final(SCRAM_NAMES[mechanism], back)
            case "plain", str(user):
                peer.take(f"\0{user}\0{peer.password}".encode())
            case "bearer", str(user):
                peer.take(f"n,,\x01auth=Bearer {peer.password}.{user}\x01\x01".encode())
            case "check", _:
                peer.check()
            case _, bytes(token):
                peer.take(token)


@settings(max_examples=examples(300), deadline=None)
@given(steps)
def test_no_order_of_messages_proves_a_user_without_the_password(schedule: list[tuple[str, object]]) -> None:
    peer = Peer("pencils")
    play(peer, schedule)
    assert peer.at_broker.user is None
    assert Stage.PROVEN not in peer.seen


@settings(max_examples=examples(300), deadline=None)
@given(steps)
def test_a_peer_with_the_password_is_only_ever_one_user(schedule: list[tuple[str, object]]) -> None:
    peer = Peer("pencil")
    play(peer, schedule)
    assert peer.at_broker.user in (None, "user", "other")
    assert (peer.at_broker.user is not None) == (Stage.PROVEN in peer.seen)


@settings(max_examples=examples(60), deadline=None)
@given(steps, st.sampled_from(list(SCRAM_NAMES)))
def test_a_peer_with_the_password_is_proved_in_order(schedule: list[tuple[str, object]], mechanism: str) -> None:
    """Whatever other connections send: each has an authentication of its own."""
    play(Peer("pencils"), schedule)
    peer = Peer("pencil")
    peer.choose(mechanism)
    peer.take(f"n,,n=user,r={CLIENT_NONCE}".encode())
    peer.final(SCRAM_NAMES[mechanism], 0)
    assert peer.at_broker.user == "user"

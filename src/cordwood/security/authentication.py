"""The authentication of one connection: a state machine without I/O.

    SaslHandshake     `choose`     the peer names a mechanism
    SaslAuthenticate  `take`       the peer's messages, one to three, as the mechanism has them
                      `checked`    a password of PLAIN was compared, outside of the loop
                      `verified`   a token of OAUTHBEARER was verified, outside of the loop
                      `keyed`      the keys of a delegation token were found, outside of the loop

A connection that has proved its user may do so again (KIP-368), as the same user and by the same mechanism. Anything
out of order, and any failure, ends the authentication: the connection is closed, and its peer has to begin anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from cordwood.model.credentials import OAUTHBEARER, PLAIN, SCRAM_NAMES, ScramMechanism
from cordwood.model.errors import ErrorCode
from cordwood.model.state_tables import Moves, State
from cordwood.security.bearer import INVALID_TOKEN, parse_bearer
from cordwood.security.exchange import Challenge, DelegationClaim, PasswordClaim, Proof, Step, TokenClaim, Unproven
from cordwood.security.plain import parse_plain
from cordwood.security.scram import FoundKeys, ScramExchange


class Stage(State):
    BEGINNING = "the peer has named no mechanism"
    EXCHANGING = "the peer has named a mechanism"
    CHECKING = "a password or a token is being checked"
    KEYING = "the keys of the delegation token are being found by which the peer wants to log in"
    REJECTED = "the peer has been told that its token is not taken, and has to answer that (RFC 7628)"
    PROVEN = "the peer has proved who it is"
    ENDED = "the peer failed, or sent something out of order"


AUTHENTICATION_MOVES: Final = Moves(
    "authentication",
    {
        Stage.BEGINNING: set(),
        Stage.EXCHANGING: {Stage.BEGINNING, Stage.KEYING, Stage.PROVEN},
        Stage.CHECKING: {Stage.EXCHANGING},
        Stage.KEYING: {Stage.EXCHANGING},
        Stage.REJECTED: {Stage.CHECKING},
        Stage.PROVEN: {Stage.EXCHANGING, Stage.CHECKING},
        Stage.ENDED: {
            Stage.BEGINNING,
            Stage.EXCHANGING,
            Stage.CHECKING,
            Stage.KEYING,
            Stage.REJECTED,
            Stage.PROVEN,
        },
    },
)

_MAY_CHOOSE: Final = frozenset({Stage.BEGINNING, Stage.PROVEN})

FindKeys = Callable[[str, ScramMechanism], FoundKeys]


class Refused(Exception):
    """The authentication has ended: the peer gets the code and the message, the broker's log the reason."""

    def __init__(self, code: ErrorCode, message: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.message = message
        self.reason = reason


class Authentication:
    """`user` and `mechanism` are those of the last proof; None before the first."""

    def __init__(self, name: str, mechanisms: Sequence[str], find: FindKeys) -> None:
        """`name` tells the connection from others in messages; `mechanisms` are those that its listener takes."""
        self.stage = Stage.BEGINNING
        self.user: str | None = None
        self.mechanism: str | None = None
        self._name = name
        self._mechanisms = mechanisms
        self._find = find
        self.chosen = ""
        """The mechanism of the exchange that is under way, or was the last; empty: none was chosen."""
        self.claimed = ""
        """The user that the peer says it is, or the id of its delegation token, in this exchange or the last."""
        self._exchange: ScramExchange | None = None
        self._claim: PasswordClaim | TokenClaim | None = None
        self._rejected = ""
        """The reason why a token was not taken."""

    def choose(self, mechanism: str, nonce: str) -> None:
        """Begins an exchange. `nonce` is for this exchange alone, and nobody can foresee it. Raises Refused."""
        if self.stage not in _MAY_CHOOSE:
            raise self._out_of_order("a SaslHandshake came while another mechanism was under way")
        if mechanism not in self._mechanisms:
            told = f"The listener takes the SASL mechanisms {', '.join(self._mechanisms)}."
            raise self._ended(ErrorCode.UNSUPPORTED_SASL_MECHANISM, told, f"{mechanism!r:.60} is not taken here")
        self.chosen = mechanism
        scram = SCRAM_NAMES.get(mechanism)
        self._exchange = None if scram is None else ScramExchange(scram, self._find, nonce)
        self._move(Stage.EXCHANGING)

    def take(self, token: bytes) -> Step:
        """The step that the peer's next message leads to. Raises Refused."""
        if self.stage is Stage.REJECTED:
            # Whatever the peer answers, the refusal follows.
            raise self._failed(self._rejected, INVALID_TOKEN.decode())
        if self.stage is not Stage.EXCHANGING:
            raise self._out_of_order("a SaslAuthenticate came without a SaslHandshake before")
        if self.mechanism not in (None, self.chosen):
            told = (
                f"SASL mechanism '{self.chosen}' requested by client is not supported for re-authentication of "
                f"mechanism '{self.mechanism}'"
            )
            raise self._ended(ErrorCode.SASL_AUTHENTICATION_FAILED, told, told)
        try:
            step = self._step(token)
        except Unproven as unproven:
            raise self._failed(str(unproven)) from None
        match step:
            case Proof():
                return self._proven(step)
            case PasswordClaim() | TokenClaim():
                self._claim = step
                self.claimed = step.user
                self._move(Stage.CHECKING)
            case DelegationClaim():
                self._move(Stage.KEYING)
        return step

    def _step(self, token: bytes) -> Step:
        if self._exchange is not None:
            step = self._exchange.take(token)
            self.claimed = self._exchange.user
            return step
        return parse_bearer(token) if self.chosen == OAUTHBEARER else parse_plain(token)

    def keyed(self, found: FoundKeys) -> Challenge:
        """Goes on with the keys of a delegation token."""
        assert self.stage is Stage.KEYING
        assert self._exchange is not None
        self._move(Stage.EXCHANGING)
        return self._exchange.keyed(found)

    def checked(self, *, is_password: bool) -> Proof:
        """Ends the check of a password. Raises Refused."""
        assert self.stage is Stage.CHECKING
        assert isinstance(self._claim, PasswordClaim)
        claim, self._claim = self._claim, None
        if not is_password:
            raise self._failed("the password is wrong, or there is no such user")
        return self._proven(Proof(claim.user, b""))

    def verified(self, verdict: Proof | Unproven) -> Proof | Challenge:
        """Ends the check of a token. A token that is not taken leads to one more message each way. Raises Refused."""
        assert self.stage is Stage.CHECKING
        assert isinstance(self._claim, TokenClaim)
        self._claim = None
        if isinstance(verdict, Proof):
            return self._proven(verdict)
        self._rejected = str(verdict)
        self._move(Stage.REJECTED)
        return Challenge(INVALID_TOKEN)

    def _proven(self, proof: Proof) -> Proof:
        if self.user not in (None, proof.user):
            told = f"Cannot change principals during re-authentication from User.{self.user}: User.{proof.user}"
            raise self._ended(ErrorCode.SASL_AUTHENTICATION_FAILED, told, told)
        self.user = self.claimed = proof.user
        self.mechanism = self.chosen
        self._exchange = None
        self._move(Stage.PROVEN)
        return proof

    def _failed(self, reason: str, told: str = "") -> Refused:
        """The refusal of a peer that proved nothing. Its message is Apache Kafka's, and the same for every reason."""
        if not told and self.chosen == PLAIN:
            told = "Authentication failed: Invalid username or password"
        elif not told:
            again = "authentication" if self.user is None else "re-authentication"
            told = f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self.chosen}"
        return self._ended(ErrorCode.SASL_AUTHENTICATION_FAILED, told, f"{self.chosen} failed: {reason}")

    def _out_of_order(self, reason: str) -> Refused:
        return self._ended(ErrorCode.ILLEGAL_SASL_STATE, f"Out of order: {reason}.", reason)

    def _ended(self, code: ErrorCode, message: str, reason: str) -> Refused:
        if self.stage is not Stage.ENDED:
            self._move(Stage.ENDED)
        self._exchange = self._claim = None
        return Refused(code, message, reason)

    def _move(self, to: Stage) -> None:
        self.stage = AUTHENTICATION_MOVES.moved(self._name, self.stage, to)

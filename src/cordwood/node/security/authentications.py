"""The authentications of all connections: who asks, by the users of the metadata store.

A connection has an authentication from its first SASL request on. A failure is answered after
`connection.failed.authentication.delay.ms`, and then the connection is closed; the connection alone waits.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.credentials import MIN_ITERATIONS, USUAL_SHAPE, ScramMechanism
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.ports import Frame, Reply
from cordwood.node.loop.timers import Timer
from cordwood.node.security.delegation_tokens import DelegationTokens
from cordwood.node.security.proof_checks import ProofChecks
from cordwood.node.security.token_keys import TokenKeys

if TYPE_CHECKING:
    from cordwood.model.credentials import ScramKeys
    from cordwood.security.authentication import Authentication, Refused
    from cordwood.security.exchange import DelegationClaim, PasswordClaim, Proof, TokenClaim, Unproven
    from cordwood.security.key_sets import KeySet
    from cordwood.security.scram import FoundKeys
    from cordwood.security.trail.port import Trail

logger = logging.getLogger("cordwood.node")

LOGGED_IN: Final = "logged in"
_REFUSED: Final = "refused"
_NO_MECHANISM: Final = "none"
"""In place of a mechanism that the listener does not take, or that the peer never named."""
_NONCE_BYTES: Final = 24
_TOKEN_ID_BYTES: Final = 16


@dataclass(slots=True, eq=False)
class _Peer:
    authentication: Authentication
    host: str
    refusal: Timer | None = None
    """The answer that a peer waits for after a failure."""


class Authentications:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        random_bytes: Callable[[int], bytes],
        delegation_tokens: DelegationTokens,
        trail: Trail | None = None,
    ) -> None:
        self._loop = loop
        self._delegation_tokens = delegation_tokens
        self._image = image
        self.token_keys = TokenKeys(loop, image.static_settings.key_sources)
        self._random_bytes = random_bytes
        self._peers: dict[int, _Peer] = {}
        self.log_ins: Counter[tuple[str, str]] = Counter()
        """Log-ins since the start, by the mechanism and how they ended; renewed ones count, too."""
        self._checks = ProofChecks(loop)
        self._trail = trail

    def of(self, reply: Reply) -> Authentication | None:
        """The authentication of a connection; None: its listener asks nobody."""
        session = reply.session
        if session.entrance.asks is None:
            return None
        peer = self._peers.get(reply.connection_id)
        if peer is None:
            # Imported here, to keep the start of a broker that asks nobody quick.
            from cordwood.security.authentication import Authentication

            name = f"of connection {reply.connection_id}"
            authentication = Authentication(name, session.entrance.asks.mechanisms, self._find)
            peer = self._peers[reply.connection_id] = _Peer(authentication, session.host)
        return peer.authentication

    def new_nonce(self) -> str:
        return self._random_bytes(_NONCE_BYTES).hex()

    def new_token_id(self) -> str:
        return self._random_bytes(_TOKEN_ID_BYTES).hex()

    def prove(self, reply: Reply, proof: Proof, mechanism: str) -> int:
        """Begins the session of a proved user. Returns its length in milliseconds; 0: it has no end."""
        now = self._loop.now
        session = reply.session.proved(proof, mechanism, now)
        reply.begin(session)
        if proof.token_id:
            self._delegation_tokens.began(session, reply)
        else:
            self._delegation_tokens.forget(reply.connection_id)
        self.log_ins[mechanism, LOGGED_IN] += 1
        if self._trail is not None:
            self._trail.logged_in(session)
        return 0 if session.ends_ms is None else max(1, session.ends_ms - now.boot_ms)

    def check(self, reply: Reply, claim: PasswordClaim, done: Callable[[bool], None]) -> None:
        """Compares a password with the user's keys. Until `done` is called the connection takes no request."""
        peer = self._peers[reply.connection_id]
        if not self._checks.has_room(peer.host):
            self._crowded_out(reply, peer, "passwords")
            return
        from cordwood.security.scram import is_password

        mechanism, found = self._keys_for_plain(claim.user)

        def checked(result: bool | Exception) -> None:
            if self._peers.get(reply.connection_id) is not peer:
                return
            if isinstance(result, Exception):
                reply.hang_up(f"the password could not be checked: {result}")
            else:
                done(result)
            reply.release()

        reply.hold()
        self._checks.check(
            reply.connection_id, peer.host, lambda: is_password(mechanism, claim.password, found), checked
        )

    def find_keys(self, reply: Reply, claim: DelegationClaim, done: Callable[[FoundKeys], None]) -> None:
        """Finds the keys of a delegation token, which are computed once. Until `done` is called the connection takes no
        request."""
        from cordwood.security.scram import FoundKeys, Grant
        from cordwood.security.unknown_users import made_up_keys

        tokens, (token_id, mechanism) = self._delegation_tokens, claim
        token, secrets = tokens.alive(token_id), tokens.secrets
        if token is None or secrets is None:
            shape = USUAL_SHAPE._replace(iterations=MIN_ITERATIONS)
            made_up = made_up_keys(self._image.users.secret, token_id, mechanism, shape)
            done(FoundKeys(made_up, is_known=False))
            return
        grant = Grant(token.user, tuple(name.partition(":")[2] for name in token.groups), token.expires_ms)
        kept = tokens.kept_keys(token_id, mechanism)
        if kept is not None:
            done(FoundKeys(kept, is_known=True, grant=grant))
            return
        peer = self._peers[reply.connection_id]
        if not self._checks.has_room(peer.host):
            self._crowded_out(reply, peer, "delegation tokens")
            return

        def computed(keys: ScramKeys | Exception) -> None:
            if not isinstance(keys, Exception):
                tokens.keep_keys(token_id, mechanism, keys)
            if self._peers.get(reply.connection_id) is not peer:
                return
            if isinstance(keys, Exception):
                reply.hang_up(f"the keys of a delegation token could not be computed: {keys}")
            else:
                done(FoundKeys(keys, is_known=True, grant=grant))
            reply.release()

        reply.hold()
        self._checks.check(reply.connection_id, peer.host, lambda: secrets.keys_of(token_id, mechanism), computed)

    def verify(self, reply: Reply, claim: TokenClaim, done: Callable[[Proof | Unproven], None]) -> None:
        """Verifies a token; one of an unknown key waits for newer keys. Until `done` is called the connection takes no
        request."""
        peer = self._peers[reply.connection_id]
        asks = reply.session.entrance.asks
        assert asks is not None
        assert asks.tokens is not None
        source, rules = asks.tokens
        from cordwood.security.exchange import UnknownKey, Unproven

        def check(*, newer_may_come: bool) -> None:
            if self._peers.get(reply.connection_id) is not peer:
                return
            if not self._checks.has_room(peer.host):
                self._crowded_out(reply, peer, "tokens")
                reply.release()
                return
            keys, now_s = self.token_keys.of(source), self._loop.now.wall_ms / 1000

            def work() -> Proof:
                # Imported in the thread: the libraries behind it take a while to load.
                from cordwood.security.key_sets import KeySet
                from cordwood.security.token_verifying import verify

                return verify(claim, KeySet() if keys is None else keys, rules, now_s)

            def checked(result: Proof | Exception) -> None:
                if self._peers.get(reply.connection_id) is not peer:
                    return
                if isinstance(result, UnknownKey) and newer_may_come and wait(keys):
                    return
                if isinstance(result, Unproven):
                    # Some clients skip the answer by which the connection would end for this reason.
                    logger.info("a token from %s is not taken: %s", peer.host, result)
                    done(result)
                elif isinstance(result, Exception):
                    reply.hang_up(f"the token could not be checked: {result}")
                else:
                    done(result)
                reply.release()

            self._checks.check(reply.connection_id, peer.host, work, checked)

        def wait(keys: KeySet | None) -> bool:
            return self.token_keys.wait_for_newer(source, keys, lambda: check(newer_may_come=False))

        reply.hold()
        check(newer_may_come=True)

    def _crowded_out(self, reply: Reply, peer: _Peer, what: str) -> None:
        reason = f"too many {what} from {peer.host} wait to be checked"
        if self._trail is not None:
            authentication = peer.authentication
            self._trail.not_logged_in(reply.session, authentication.chosen, authentication.claimed, reason)
        reply.hang_up(reason)

    def refuse(self, reply: Reply, frame: Frame, refused: Refused) -> None:
        """Answers a failure later, and closes the connection behind the answer."""
        peer = self._peers[reply.connection_id]
        authentication = peer.authentication
        self.log_ins[authentication.chosen or _NO_MECHANISM, _REFUSED] += 1
        if self._trail is not None:
            self._trail.not_logged_in(reply.session, authentication.chosen, authentication.claimed, refused.reason)
        reply.hold()

        def answer(now: Moment) -> None:
            peer.refusal = None
            reply.send_last(frame, refused.reason)

        peer.refusal = self._loop.after(self._image.settings.connection_failed_authentication_delay_ms, answer)

    def connection_closed(self, connection_id: int) -> None:
        self._delegation_tokens.forget(connection_id)
        peer = self._peers.pop(connection_id, None)
        if peer is not None:
            self._checks.connection_closed(connection_id, peer.host)
            if peer.refusal is not None:
                peer.refusal.cancel()

    def _find(self, user: str, mechanism: ScramMechanism) -> FoundKeys:
        """The keys of a user. An unknown user's keys are made up; the same work is done for each user."""
        from cordwood.security.scram import FoundKeys
        from cordwood.security.unknown_users import drawn_shape, made_up_keys

        users = self._image.users
        shape = drawn_shape(users.secret, user, mechanism, users.shapes(mechanism))
        made_up = made_up_keys(users.secret, user, mechanism, shape)
        row = users.rows.get(user)
        keys = None if row is None else row.keys.get(mechanism)
        return FoundKeys(made_up, is_known=False) if keys is None else FoundKeys(keys, is_known=True)

    def _keys_for_plain(self, user: str) -> tuple[ScramMechanism, FoundKeys]:
        """The keys that a password is compared with: those for SHA-256, if the user has them, as most users do."""
        found = self._find(user, ScramMechanism.SHA_256)
        other = self._find(user, ScramMechanism.SHA_512)
        if other.is_known and not found.is_known:
            return ScramMechanism.SHA_512, other
        return ScramMechanism.SHA_256, found

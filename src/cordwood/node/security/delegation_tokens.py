"""Delegation tokens at one broker: their secrets, the keys by which holders log in, and the end of those that are over.

Keys are computed in the threads for clients' work, once for each token and mechanism, and kept while the token lives.
The controller removes tokens that are over; nobody logs in by one that waits for its removal.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Final

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.credentials import ScramMechanism
from cordwood.model.delegation_tokens import DelegationToken, Lifetimes
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.ports import Reply
from cordwood.node.loop.reports import Reports
from cordwood.node.requests.parked import ParkedRequests
from cordwood.security.sessions import Session

if TYPE_CHECKING:
    from cordwood.model.credentials import ScramKeys
    from cordwood.security.token_secrets import TokenSecrets

HASHED_PER_STEP: Final = 1_000
"""Secrets that are computed in one step: each takes two microseconds."""
RETRY_AFTER_MS: Final = 5_000


class DelegationTokens:
    def __init__(
        self, loop: Loop, image: ClusterImage, reports: Reports, parked: ParkedRequests, secrets: TokenSecrets | None
    ) -> None:
        """`secrets`: None if there are no delegation tokens here."""
        self.secrets = secrets
        self._loop = loop
        self._image = image
        self._reports = reports
        self._parked = parked
        self._changes_seen = -1
        self._ids_by_secret: dict[bytes, str] = {}
        self._hashed: set[str] = set()
        """The tokens whose secrets are known."""
        self._keys: dict[tuple[str, ScramMechanism], ScramKeys] = {}
        self._sessions: dict[str, dict[int, _TokenSession]] = {}
        """The sessions that began by a token, by its id and the connection."""
        self._token_of: dict[int, str] = {}
        """The ids of these tokens, by the connection."""

    @property
    def lifetimes(self) -> Lifetimes:
        settings = self._image.static_settings
        return Lifetimes(settings.delegation_token_max_lifetime_ms, settings.delegation_token_expiry_time_ms)

    def alive(self, token_id: str) -> DelegationToken | None:
        """The token, unless there is none, or it is over."""
        token = self._image.tokens.find(token_id)
        return None if token is None or token.is_over(self._loop.now.wall_ms) else token

    def with_secret(self, secret: bytes) -> Generator[None, None, str | None]:
        """The id of the token with this secret, in steps; None: there is none. Tokens are asked for by their secrets
        alone."""
        assert self.secrets is not None
        self._drop_gone()
        for count, token_id in enumerate([each for each in self._image.tokens.rows if each not in self._hashed], 1):
            self._ids_by_secret[self.secrets.hmac_of(token_id)] = token_id
            self._hashed.add(token_id)
            if not count % HASHED_PER_STEP:
                yield
        return self._ids_by_secret.get(secret)

    def kept_keys(self, token_id: str, mechanism: ScramMechanism) -> ScramKeys | None:
        return self._keys.get((token_id, mechanism))

    def keep_keys(self, token_id: str, mechanism: ScramMechanism, keys: ScramKeys) -> None:
        if self._image.tokens.find(token_id) is not None:
            self._keys[token_id, mechanism] = keys

    # Sessions

    def began(self, session: Session, reply: Reply) -> None:
        """Takes note of a session that began by a token: it ends with the token, whatever becomes of this."""
        asks, token_id = session.entrance.asks, session.token_id
        assert asks is not None
        again_ms = self._loop.now.boot_ms + asks.session_ms if asks.session_ms else None
        self.forget(reply.connection_id)
        self._sessions.setdefault(token_id, {})[reply.connection_id] = _TokenSession(session, reply, again_ms)
        self._token_of[reply.connection_id] = token_id
        self._end_with_token(token_id)

    def forget(self, connection_id: int) -> None:
        """The connection is closed, or has another session."""
        token_id = self._token_of.pop(connection_id, None)
        if token_id is not None:
            del self._sessions[token_id][connection_id]
            if not self._sessions[token_id]:
                del self._sessions[token_id]

    def image_changed(self) -> None:
        if self._image.tokens.changes != self._changes_seen:
            self._changes_seen = self._image.tokens.changes
            self._drop_gone()
            for token_id in self._sessions:
                self._end_with_token(token_id)

    def _end_with_token(self, token_id: str) -> None:
        now = self._loop.now
        token = self._image.tokens.find(token_id)
        over_ms = 0 if token is None else now.boot_ms + token.expires_ms - now.wall_ms
        for connection_id, session in self._sessions[token_id].items():
            if session.end(over_ms):
                # What waits was bounded by the end that the session had. Answers leave after this event.
                self._loop.after(0, partial(self._parked.hurry, connection_id))

    def _drop_gone(self) -> None:
        rows = self._image.tokens.rows
        if not self._hashed <= rows.keys():
            self._hashed &= rows.keys()
            self._ids_by_secret = {
                secret: token_id for secret, token_id in self._ids_by_secret.items() if token_id in rows
            }
        for key in [key for key in self._keys if key[0] not in rows]:
            del self._keys[key]

    # The end of tokens

    def schedule(self) -> None:
        self._loop.after(self._image.static_settings.delegation_token_expiry_check_interval_ms, self._due)

    def _due(self, now: Moment) -> None:
        rows = self._image.tokens.rows.values()
        if self._image.controller_id != self._image.node_id or not any(row.token.is_over(now.wall_ms) for row in rows):
            self.schedule()
            return
        self._loop.effects.metadata(lambda writer: writer.remove_expired_tokens(now.wall_ms), self._removed)

    def _removed(self, more: bool | Exception) -> None:
        if isinstance(more, Exception):
            self._reports.failure(more)
            self._loop.after(RETRY_AFTER_MS, self._due)
        elif more:
            self._loop.after(0, self._due)
        else:
            self.schedule()


class _TokenSession:
    __slots__ = ("_again_ms", "_reply", "_session")

    def __init__(self, session: Session, reply: Reply, again_ms: int | None) -> None:
        """`again_ms`: the time at which the peer has to log in again in any case; None: never."""
        self._session = session
        self._reply = reply
        self._again_ms = again_ms

    def end(self, over_ms: int) -> bool:
        """Lets the session end with its token. True if that is another end than the session had."""
        ends_ms = over_ms if self._again_ms is None else min(over_ms, self._again_ms)
        if self._session.ends_ms == ends_ms:
            return False
        self._session = self._session._replace(ends_ms=ends_ms)
        self._reply.begin(self._session)
        return True

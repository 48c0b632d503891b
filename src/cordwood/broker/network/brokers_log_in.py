"""How this broker logs in at others: SCRAM, with keys that are computed once.

Salting a password takes 5 to 40 ms of a thread. The user's keys have one salting until somebody changes the password:
after the first log-in every further one, also at a new leader, costs the loop some hashes.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

from cordwood.broker.network.opening_links import Ask, LogInFailed
from cordwood.model.errors import ErrorCode
from cordwood.model.settings.sasl_settings import BrokersLogIn
from cordwood.security.scram_client import ClientKeys, Salting, ScramClient, Untrusted, client_keys
from cordwood.wire.apis import ApiKey

MOST_KEPT: Final = 4
"""Saltings whose keys are kept: while a password is changed brokers know two."""

_NONCE_BYTES: Final = 24
_VERSION: Final = 1


class ScramLogIn:
    """Belongs to one event loop."""

    def __init__(self, settings: BrokersLogIn) -> None:
        self._mechanism = settings.mechanism
        self._user = settings.user
        self._keys: dict[Salting, asyncio.Task[ClientKeys]] = {}

    @property
    def _who(self) -> str:
        return f"the log-in of User:{self._user.user} by {self._mechanism.sasl_name}"

    async def log_in(self, ask: Ask) -> int:
        """Proves this broker's user to a peer. Returns the session's length in ms; 0: it has no end. Raises
        LogInFailed, and what `ask` raises."""
        answer = await ask(ApiKey.SASL_HANDSHAKE, _VERSION, {"mechanism": self._mechanism.sasl_name})
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise LogInFailed(f"{self._who} is not taken: the listener takes {', '.join(answer.mechanisms) or 'none'}")
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise LogInFailed(f"{self._who} is not taken: the listener asks nobody (listener.security.protocol.map)")
        if answer.error_code:
            raise LogInFailed(f"{self._who} was refused with error {answer.error_code}")
        client = ScramClient(self._mechanism, self._user.user, secrets.token_hex(_NONCE_BYTES))
        try:
            challenge = await self._authenticate(ask, client.first())
            keys = await self._keys_of(client.challenged(challenge.auth_bytes))
            last = await self._authenticate(ask, client.final(keys))
            client.check(last.auth_bytes)
        except Untrusted as reason:
            raise LogInFailed(f"the peer is not trusted with {self._who}: {reason}") from None
        lifetime_ms: int = last.session_lifetime_ms
        return lifetime_ms

    async def _authenticate(self, ask: Ask, token: bytes) -> Any:
        answer = await ask(ApiKey.SASL_AUTHENTICATE, _VERSION, {"auth_bytes": token})
        if answer.error_code:
            raise LogInFailed(
                f"{self._who} was refused: {answer.error_message or f'error {answer.error_code}'} (`cordwood user "
                "list` has the users; sasl.jaas.config of the listener between brokers has the password)"
            )
        return answer

    async def _keys_of(self, salting: Salting) -> ClientKeys:
        """The keys for a salting. Log-ins that need the same at the same time wait for one computation, and a log-in
        that is given up leaves it to the next."""
        task = self._keys.get(salting)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            while len(self._keys) >= MOST_KEPT:
                del self._keys[next(iter(self._keys))]
            computed = asyncio.to_thread(client_keys, self._mechanism, self._user.password, salting)
            task = self._keys[salting] = asyncio.get_running_loop().create_task(computed)
        return await asyncio.shield(task)

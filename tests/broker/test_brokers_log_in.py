"""The log-in of a broker at others, against the broker's side of SCRAM: keys are computed once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cordwood.broker.network import brokers_log_in
from cordwood.broker.network.brokers_log_in import MOST_KEPT, ScramLogIn
from cordwood.broker.network.opening_links import LogInFailed
from cordwood.model.credentials import ScramMechanism
from cordwood.model.errors import ErrorCode
from cordwood.model.jaas import LogIn
from cordwood.model.settings.sasl_settings import BrokersLogIn
from cordwood.security.exchange import Proof, Unproven
from cordwood.security.scram import FoundKeys, ScramExchange, make_keys
from cordwood.security.scram_client import ClientKeys, Salting, client_keys
from cordwood.wire.apis import ApiKey

MECHANISM = ScramMechanism.SHA_512


class Peer:
    """A connection to a broker whose users' keys have this salt."""

    def __init__(self, salt: bytes = b"salt", refuses: int = 0) -> None:
        self._refuses = refuses
        keys = make_keys(MECHANISM, "secret", salt, 4096)
        self._exchange = ScramExchange(MECHANISM, lambda user, _: FoundKeys(keys, user == "broker"), "ofthepeer")

    async def ask(self, api_key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        await asyncio.sleep(0)
        if api_key == ApiKey.SASL_HANDSHAKE:
            return SimpleNamespace(error_code=self._refuses, mechanisms=["SCRAM-SHA-256"])
        try:
            step = self._exchange.take(values["auth_bytes"])
        except Unproven:
            return SimpleNamespace(error_code=58, error_message="Authentication failed", auth_bytes=b"")
        lifetime_ms = 7_000 if isinstance(step, Proof) else 0
        assert not hasattr(step, "password")
        return SimpleNamespace(error_code=0, auth_bytes=getattr(step, "token", b""), session_lifetime_ms=lifetime_ms)


def log_in(password: str = "secret") -> ScramLogIn:
    return ScramLogIn(BrokersLogIn(MECHANISM, LogIn("broker", password)))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Salting]:
    saltings: list[Salting] = []

    def counted(mechanism: ScramMechanism, password: str, salting: Salting) -> ClientKeys:
        saltings.append(salting)
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()  # the loop goes on meanwhile
        return client_keys(mechanism, password, salting)

    monkeypatch.setattr(brokers_log_in, "client_keys", counted)
    return saltings


async def test_all_connections_to_all_peers_share_keys_that_are_computed_once_in_a_thread(
    computed: list[Salting],
) -> None:
    one = log_in()
    assert await asyncio.gather(*(one.log_in(Peer().ask) for _ in range(25))) == [7_000] * 25
    assert await one.log_in(Peer().ask) == 7_000
    assert computed == [Salting(b"salt", 4096)]


async def test_a_changed_password_brings_new_keys_and_few_are_kept(computed: list[Salting]) -> None:
    one = log_in()
    salts = [b"salt %d" % number for number in range(MOST_KEPT + 1)]
    for salt in salts:
        await one.log_in(Peer(salt).ask)
        await one.log_in(Peer(salt).ask)
    assert [salting.salt for salting in computed] == salts
    assert len(one._keys) == MOST_KEPT


async def test_a_log_in_that_is_given_up_leaves_the_keys_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, begun, go_on, computed = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), []

    def held(mechanism: ScramMechanism, password: str, salting: Salting) -> ClientKeys:
        computed.append(salting)
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(60)
        return client_keys(mechanism, password, salting)

    monkeypatch.setattr(brokers_log_in, "client_keys", held)
    one = log_in()
    given_up = asyncio.create_task(one.log_in(Peer().ask))
    await begun.wait()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    go_on.set()
    assert await one.log_in(Peer().ask) == 7_000
    assert len(computed) == 1


@pytest.mark.parametrize(
    ("refuses", "reason"),
    [
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "the listener takes SCRAM-SHA-256"),
        (ErrorCode.ILLEGAL_SASL_STATE, "asks nobody"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "refused with error -1"),
    ],
)
async def test_a_listener_that_takes_no_such_log_in_is_named(refuses: ErrorCode, reason: str) -> None:
    with pytest.raises(LogInFailed, match=reason):
        await log_in().log_in(Peer(refuses=refuses).ask)


async def test_a_wrong_password_is_said_and_not_shown() -> None:
    with pytest.raises(LogInFailed, match="log-in of User:broker by SCRAM-SHA-512 was refused") as failed:
        await log_in("a guess").log_in(Peer().ask)
    assert "a guess" not in str(failed.value)

"""Strangers at a listener with SASL: frames in every order, mutated and cut, beside a client that has logged in.

Nobody gets an answer to anything but versions and SASL without the password, nothing of a stranger stays behind, and
the client goes on.
"""

import os
import random
import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.deadline import eventually
from tests.fuzz.raw_connection import RawConnection
from tests.identity_provider import AUDIENCE, Provider
from tests.interop.test_sasl_clients import SETTINGS, add_user, of_librdkafka
from tests.unit.security.test_scram import CLIENT_NONCE, final_message

from cordwood.embedded import Broker
from cordwood.model.credentials import SCRAM_NAMES
from cordwood.security.bearer import INVALID_TOKEN
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.asking import decode_response

ROUNDS = int(os.environ.get("CORDWOOD_FUZZ_ROUNDS", "300"))
SEED = int(os.environ.get("CORDWOOD_FUZZ_SEED", "1"))
PROVIDER = Provider()
BAD_TOKENS = (
    PROVIDER.token(lasts_s=-3600),
    PROVIDER.token(aud="billing"),
    PROVIDER.token()[:-9],
    PROVIDER.sign(PROVIDER.claims(), kid="made-up"),
    Provider().token(),
    "e30.e30.",
    "a" * 40_000,
)
MAY_ANSWER = {int(ApiKey.API_VERSIONS), int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(PROVIDER.key_set())
    settings = {
        **SETTINGS,
        "sasl.enabled.mechanisms": f"{SETTINGS['sasl.enabled.mechanisms']},OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(settings=settings) as broker:
        add_user(broker)
        yield broker


def frame(key: int, version: int, body: bytes, correlation_id: int) -> bytes:
    flexible = b"\0" if version >= APIS[key].flexible_from else b""
    payload = struct.pack(">hhih", key, version, correlation_id, -1) + flexible + body
    return struct.pack(">i", len(payload)) + payload


def handshake(mechanism: str) -> bytes:
    return struct.pack(">h", len(mechanism)) + mechanism.encode()


def token(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


class Stranger:
    """A peer without the password."""

    def __init__(self, broker: Broker, chance: random.Random) -> None:
        self.chance = chance
        self.raw = RawConnection(broker.listeners["USERS"])
        self.asked: list[tuple[int, int]] = []
        self.challenge = b"r=x,s=c2FsdA==,i=4096"

    def play(self) -> None:
        for _ in range(self.chance.randint(1, 8)):
            key, version, body = self.next_request()
            sent = frame(key, version, body, len(self.asked))
            if self.chance.random() < 0.1:
                place = self.chance.randrange(4, len(sent))
                sent = sent[:place] + bytes([self.chance.randrange(256)]) + sent[place + 1 :]
                self.raw.send(sent)
                return
            self.asked.append((key, version))
            if not self.raw.send(sent) or not self.read():
                return

    def next_request(self) -> tuple[int, int, bytes]:
        chance = self.chance
        match chance.randrange(7):
            case 0:
                key = chance.choice(sorted(APIS))
                return key, chance.randint(APIS[key].min_version, APIS[key].max_version), chance.randbytes(20)
            case 1:
                return ApiKey.METADATA, 1, struct.pack(">i", -1)
            case 2:
                return ApiKey.API_VERSIONS, 0, b""
            case 3:
                name = chance.choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "é"])
                return ApiKey.SASL_HANDSHAKE, chance.choice([0, 1, 1, 1]), handshake(name)
            case _:
                return ApiKey.SASL_AUTHENTICATE, chance.choice([0, 1]), token(self.next_token())

    def next_token(self) -> bytes:
        chance = self.chance
        match chance.randrange(6):
            case 4:
                return f"n,,\x01auth=Bearer {chance.choice(BAD_TOKENS)}\x01\x01".encode()
            case 5:
                return b"\x01"
            case 0:
                return f"n,,n={chance.choice(['alice', 'nobody'])},r={CLIENT_NONCE}".encode()
            case 1:
                mechanism = SCRAM_NAMES[chance.choice(list(SCRAM_NAMES))]
                return final_message(mechanism, "wrong", self.challenge, user="alice")
            case 2:
                return b"\0alice\0" + chance.randbytes(chance.randrange(8))
            case _:
                return chance.randbytes(chance.randrange(60))

    def read(self) -> bool:
        """Reads the answer. False if the broker has closed the connection."""
        answer = self.raw.receive_frame()
        if answer is None:
            return False
        (correlation_id,) = struct.unpack_from(">i", answer)
        key, version = self.asked[correlation_id]
        assert key in MAY_ANSWER, f"a stranger got an answer of {APIS[key].name}"
        if key == ApiKey.SASL_AUTHENTICATE:
            told = decode_response(key, version, memoryview(answer))
            if told.error_code == 0:
                if told.auth_bytes == INVALID_TOKEN:
                    return True
                assert told.auth_bytes.startswith(b"r="), f"a stranger got {told.auth_bytes!r}"
                self.challenge = bytes(told.auth_bytes)
        return True


def test_strangers_get_nothing_and_leave_nothing_behind(broker: Broker) -> None:
    producer = Producer(of_librdkafka(broker, "SCRAM-SHA-256"))
    errors: list[object] = []
    for number in range(ROUNDS):
        stranger = Stranger(broker, random.Random(SEED * 1_000_000 + number))
        stranger.play()
        stranger.raw.close()
        producer.produce("orders", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None] * ROUNDS

    def peers() -> int:
        assert broker._run is not None
        return len(broker._run._started.result().node.authentications._peers)

    eventually(lambda: peers() <= 2, what="no authentication but those of the producer")

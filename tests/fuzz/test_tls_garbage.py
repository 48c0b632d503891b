"""Strangers at a listener with TLS and log-ins: garbage, cut and changed handshakes, thousands of halves.

The broker answers nobody past its handshake and log-in, keeps nothing of those who left, and serves a client that has
logged in all the while. The seeds are fixed: a failure can be had again.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.broker_process import BrokerProcess
from tests.deadline import eventually

from cordwood.wire.apis import ApiKey

ROUNDS = int(os.environ.get("CORDWOOD_FUZZ_ROUNDS", "150"))
SEED = int(os.environ.get("CORDWOOD_FUZZ_SEED", "1"))
HALVES = 1_000
MAX_GROWTH_BYTES = 96 << 20
"""A half handshake has some 40 KiB of OpenSSL's; what the allocator keeps of it is not growth."""
LATE_S = 30.0


class Stage:
    def __init__(self, broker: BrokerProcess, data: Path) -> None:
        self.broker = broker
        lines = (data / "secure" / "librdkafka.properties").read_text().splitlines()
        self.client = dict(line.split("=", 1) for line in lines)
        self.producer = Producer(self.client)
        self.errors: list[object] = []
        host, _, port = broker.bootstrap.rpartition(":")
        self.address = (host, int(port))
        self.context = ssl.create_default_context(cafile=self.client["ssl.ca.location"])

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=60)

    def produce(self) -> None:
        self.producer.produce("orders", b"x", on_delivery=lambda error, _: self.errors.append(error))
        self.producer.poll(0)

    def assert_served(self, records: int) -> None:
        assert self.producer.flush(120) == 0
        assert self.errors == [None] * records
        self.errors.clear()
        assert self.broker.alive, self.broker.output()[-4000:]
        assert "Traceback" not in self.broker.output(), self.broker.output()[-8000:]

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.broker.pid}/fd"))

    def hello(self) -> bytes:
        """A whole ClientHello."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        return outgoing.read()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    data = tmp_path_factory.mktemp("fuzz") / "data"
    settings = {"max.connections.per.ip": "100000"}
    with BrokerProcess(data, options=["--secure"], settings=settings) as broker:
        made = Stage(broker, data)
        made.produce()
        made.assert_served(1)
        yield made


def garbage(stage: Stage, chance: random.Random) -> bytes:
    hello = stage.hello()
    match chance.randrange(6):
        case 0:
            return chance.randbytes(chance.randint(1, 400))
        case 1:
            return b"\x16\x03\x01" + chance.randbytes(chance.randint(0, 600))
        case 2:
            return hello[: chance.randrange(1, len(hello))]
        case 3:
            changed = bytearray(hello)
            for _ in range(chance.randint(1, 8)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            return bytes(changed)
        case 4:
            return hello + chance.randbytes(chance.randint(1, 300))
        case _:
            frame = struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + struct.pack(">i", -1)
            return struct.pack(">i", len(frame)) + frame


def test_garbage_in_place_of_a_handshake_gets_no_answer_but_an_alert(stage: Stage) -> None:
    before = stage.descriptors
    for number in range(ROUNDS):
        chance = random.Random(SEED * 1_000_000 + number)
        with stage.connect() as stranger, suppress(ConnectionError):
            stranger.sendall(garbage(stage, chance))
            if chance.random() < 0.7:
                stranger.shutdown(socket.SHUT_WR)
                answer = stranger.recv(65536)
                # Records of a handshake (22), of a change of ciphers (20), and alerts (21) come before any data.
                assert answer[:1] in (b"", b"\x14", b"\x15", b"\x16"), answer[:20]
        if not number % 10:
            stage.produce()
    stage.assert_served((ROUNDS + 9) // 10)
    eventually(lambda: stage.descriptors <= before + 5, what="no connection of a stranger")


def test_behind_a_handshake_nothing_but_a_log_in_is_answered(stage: Stage) -> None:
    for number in range(ROUNDS // 5):
        chance = random.Random(SEED * 2_000_000 + number)
        with stage.connect() as plain, stage.context.wrap_socket(plain, server_hostname="localhost") as stranger:
            key = chance.choice([ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.CREATE_ACLS, 32_000])
            frame = struct.pack(">hhih", key, chance.randint(0, 12), 1, -1) + chance.randbytes(chance.randint(0, 100))
            with suppress(ConnectionError, ssl.SSLError):
                stranger.sendall(struct.pack(">i", len(frame)) + frame)
                assert stranger.recv(100) == b""
    stage.produce()
    stage.assert_served(1)


def test_half_handshakes_by_the_thousand_are_closed_and_nobody_waits_for_them(stage: Stage) -> None:
    before, before_bytes = stage.descriptors, stage.broker.rss_bytes()
    hello = stage.hello()
    chance = random.Random(SEED)
    with ExitStack() as strangers:
        for number in range(HALVES):
            stranger = strangers.enter_context(stage.connect())
            with suppress(ConnectionError):
                stranger.sendall(hello[: chance.randrange(1, len(hello) + 1)])
            if not number % 100:
                stage.produce()
        stage.assert_served(HALVES // 100)
        assert stage.broker.rss_bytes() - before_bytes < MAX_GROWTH_BYTES
        # The strangers stay: their time for the handshake ends.
        eventually(lambda: stage.descriptors <= before + 5, what="no half handshake", within_s=LATE_S * 8)
    stage.produce()
    stage.assert_served(1)

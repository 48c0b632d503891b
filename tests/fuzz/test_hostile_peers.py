"""Peers that are slow, silent, greedy or many: others do not notice, and the broker stays small."""

import struct
import time
from contextlib import suppress

from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadline import eventually
from tests.fuzz.conftest import IDLE_MS, MAX_GROWTH_BYTES, MAX_REQUEST_BYTES, Target
from tests.fuzz.raw_connection import PROBE, RawConnection, framed


def test_announced_bytes_that_never_come_take_no_memory(target: Target) -> None:
    target.assert_serves()
    before = target.process.rss_bytes()
    peers = [RawConnection(target.bootstrap) for _ in range(200)]
    for peer in peers:
        peer.send(struct.pack(">i", MAX_REQUEST_BYTES) + b"\x00\x00")
    target.assert_serves()
    assert target.process.rss_bytes() - before < MAX_GROWTH_BYTES
    for peer in peers:
        peer.close()


def test_slow_peers_do_not_slow_others(target: Target) -> None:
    """Two hundred peers, one byte of a request at a time, while ordinary clients work."""
    target.assert_serves()
    before = target.process.rss_bytes()
    peers = [RawConnection(target.bootstrap) for _ in range(200)]
    request = framed(PROBE)
    slowest_round_s = 0.0
    for place in range(len(request) - 1):
        round_began_s = time.monotonic()
        for peer in peers:
            peer.send(request[place : place + 1])
        if place % 5 == 0:
            target.assert_serves()
        slowest_round_s = max(slowest_round_s, time.monotonic() - round_began_s)
    for peer in peers:
        peer.send(request[-1:])
    answered = [peer.receive_frame() is not None for peer in peers]
    # On a machine that stood still for seconds, the broker has let peers go as idle, by right.
    stood_still = slowest_round_s > IDLE_MS / 2000
    assert all(answered) or stood_still
    assert target.process.rss_bytes() - before < MAX_GROWTH_BYTES
    for peer in peers:
        peer.close()


def test_silent_peers_are_let_go(target: Target) -> None:
    silent = [RawConnection(target.bootstrap) for _ in range(20)]
    halfway = [RawConnection(target.bootstrap) for _ in range(20)]
    for peer in halfway:
        peer.send(framed(PROBE)[:7])
    started = time.monotonic()
    assert all(peer.is_closed(within_s=IDLE_MS / 1000 + 120) for peer in (*silent, *halfway))
    assert time.monotonic() - started > IDLE_MS / 1000 / 2
    target.assert_serves()


def test_a_peer_that_asks_and_never_reads_is_not_served_without_end(target: Target) -> None:
    """Its answers stay with the broker up to a bound; then its requests are not read, and it feels that."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_topics([NewTopic("wide", 1000, 1)], operation_timeout=30)["wide"].result(60)
    target.assert_serves()
    before = target.process.rss_bytes()
    # Some 30 kB each way, so that the kernel's own buffers are soon full.
    request = framed(struct.pack(">hhih", 3, 1, 9, 30_000) + b"c" * 30_000 + struct.pack(">i", -1))
    greedy = [RawConnection(target.bootstrap) for _ in range(5)]
    for peer in greedy:
        assert sent_before_it_stalls(peer, request, limit_bytes=100 << 20) < 100 << 20
    target.assert_serves()
    assert target.process.rss_bytes() - before < MAX_GROWTH_BYTES
    for peer in greedy:
        peer.close()


def sent_before_it_stalls(peer: RawConnection, request: bytes, limit_bytes: int) -> int:
    """How much the broker and the kernel take from a peer that reads nothing."""
    peer.socket.settimeout(1)
    sent = 0
    with suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
        while sent < limit_bytes:
            peer.socket.sendall(request)
            sent += len(request)
    return sent


def test_more_connections_than_allowed(target: Target) -> None:
    """Those beyond the limit are closed at once; when others leave there is room again."""
    began_s = time.monotonic()
    peers = [RawConnection(target.bootstrap) for _ in range(600)]
    answered = [peer for peer in peers if peer.ask(PROBE) is not None]
    # On a machine that stood still for seconds, the broker has let peers go as idle before they asked.
    stood_still = time.monotonic() - began_s > IDLE_MS / 2000
    assert len(answered) > 0
    assert 400 < len(answered) <= 500 or stood_still
    for peer in peers:
        peer.close()

    def room_again() -> bool:
        with RawConnection(target.bootstrap) as peer:
            return peer.ask(PROBE) is not None

    eventually(room_again, what="room for a new connection")
    target.assert_serves()


def test_connections_that_come_and_go(target: Target) -> None:
    target.assert_serves()
    before = target.process.rss_bytes()
    for _ in range(2000):
        with RawConnection(target.bootstrap) as peer:
            peer.send(framed(PROBE))
    target.assert_serves()
    assert target.process.rss_bytes() - before < MAX_GROWTH_BYTES

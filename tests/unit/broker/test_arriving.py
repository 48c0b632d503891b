"""Memory for arriving requests: ordinary requests do not wait for large ones, and slow holders make way."""

import math
from dataclasses import dataclass, field

import pytest

from cordwood.broker.network.arriving import (
    ARRIVAL_BYTES_PER_S,
    COUNTED_S,
    GRACE_S,
    LOOK_S,
    ORDINARY_BYTES,
    PRESSED_LOOK_S,
    SLOW_BYTES_PER_S,
    Arriving,
)

MB = 1024 * 1024
MAX = 256 * MB
LARGE = 100 * MB
PLENTY = 10 * MB


@dataclass(eq=False)
class Peer:
    client_host: str = "10.0.0.1"
    arrived_bytes: int = 0
    receiving: bool = True
    asked_again: int = 0
    closed: list[str] = field(default_factory=list)

    def serve_on(self) -> None:
        self.asked_again += 1

    def close(self, reason: str) -> None:
        self.closed.append(reason)


def drip(arriving: Arriving, peers: list[Peer], since_s: float, looks: int) -> float:
    """The peers send a byte between two looks. Returns the time of the last look."""
    now_s = since_s
    until_next_s = arriving.look(now_s)
    for _ in range(looks):
        for peer in peers:
            peer.arrived_bytes += 1
        now_s += until_next_s
        until_next_s = arriving.look(now_s)
    return now_s


def holding(arriving: Arriving, count: int, size: int = LARGE, addresses: int = 12) -> list[Peer]:
    """Peers that were let in and have sent nearly all, and others that wait."""
    peers = [Peer(f"10.0.0.{number % addresses}") for number in range(count)]
    for peer in peers:
        if arriving.ask(peer, size, 0):
            peer.arrived_bytes = size - 3
    return peers


def test_a_request_is_promised_its_whole_size_and_waits_for_none() -> None:
    arriving, peer = Arriving(MAX), Peer()
    assert arriving.ask(peer, LARGE, 0)
    assert arriving.ask(peer, LARGE, 0)
    assert arriving.held_bytes == LARGE
    arriving.end(peer, 1)
    arriving.end(peer, 1)
    assert (arriving.held_bytes, arriving.waiting) == (0, 0)


def test_ordinary_requests_do_not_wait_for_larger_ones_nor_those_for_huge_ones() -> None:
    arriving = Arriving(MAX)
    holding(arriving, 12)
    assert arriving.waiting > 0
    assert all(arriving.ask(Peer(), PLENTY, 0) for _ in range(3))
    holding(arriving, 30, PLENTY)
    ordinary = [Peer() for _ in range(MAX // 8 // ORDINARY_BYTES)]
    assert all(arriving.ask(peer, ORDINARY_BYTES, 0) for peer in ordinary)


def test_a_large_request_is_not_overtaken_without_end_by_ordinary_ones() -> None:
    arriving = Arriving(MAX)
    ordinary = [Peer(f"10.0.{number // 8}.1") for number in range(MAX // ORDINARY_BYTES)]
    assert all(arriving.ask(peer, ORDINARY_BYTES, 0) for peer in ordinary), "all of the memory, while nobody else waits"
    large = Peer("10.1.1.1")
    assert not arriving.ask(large, LARGE, 0)
    for peer in ordinary:
        arriving.end(peer, 0)
        arriving.ask(Peer("10.2.2.2"), ORDINARY_BYTES, 0)
    assert large.asked_again == 1
    assert arriving.ask(large, LARGE, 0)


def test_one_large_request_is_let_through_however_little_memory_there_is() -> None:
    arriving = Arriving(MB)
    first, second = Peer(), Peer("10.0.0.2")
    assert arriving.ask(first, LARGE, 0)
    assert not arriving.ask(second, LARGE, 0)
    arriving.end(first, 1)
    assert second.asked_again == 1
    assert arriving.held_bytes == LARGE


def test_one_address_has_a_part_and_addresses_take_turns() -> None:
    arriving = Arriving(MAX)
    greedy = [Peer("10.0.0.1") for _ in range(100)]
    held = [peer for peer in greedy if arriving.ask(peer, PLENTY, 0)]
    assert len(held) == MAX // 8 // PLENTY
    others = [Peer(f"10.0.1.{number}") for number in range(100)]
    got = [peer for peer in others if arriving.ask(peer, PLENTY, 0)]
    assert len(got) >= len(held)
    late = Peer("10.0.2.1")
    assert not arriving.ask(late, PLENTY, 0)
    turns = [peer for peer in others if peer not in got]
    while not late.asked_again:
        arriving.end(got.pop(0) if got else turns.pop(0), 1)
    assert sum(bool(peer.asked_again) for peer in greedy) <= len(held) + 1, "once more in a turn of all addresses"


def test_holders_that_drip_are_cut_off_as_soon_as_somebody_waits() -> None:
    arriving = Arriving(MAX)
    (dripping,) = holding(arriving, 1)
    now_s = drip(arriving, [dripping], 0, 20)
    assert not dripping.closed, "nobody waits"
    assert arriving.ask(Peer("10.0.0.2"), LARGE, now_s + 0.5), "at once: it was slow at the last look, and still is"
    assert "arrives too slowly" in dripping.closed[0]


def test_a_huge_request_behind_twelve_that_drip_waits_less_than_a_second_for_each() -> None:
    arriving = Arriving(MAX)
    peers = holding(arriving, 12)
    honest = Peer("10.9.9.9")
    assert not arriving.ask(honest, LARGE, 0)
    now_s = 0.0
    while not honest.asked_again:
        now_s = drip(arriving, peers, now_s, 1)
    assert now_s <= 12
    assert arriving.ask(honest, LARGE, now_s)
    assert not honest.closed


def test_a_holder_whose_bytes_come_has_time_for_its_size() -> None:
    arriving = Arriving(MAX)
    steady, waits = Peer("10.0.0.1"), Peer("10.0.0.2")
    assert arriving.ask(steady, LARGE, 0)
    assert not arriving.ask(waits, LARGE, 0)
    now_s = 0.0
    while not steady.closed:
        now_s += LOOK_S
        steady.arrived_bytes += 2 * SLOW_BYTES_PER_S
        arriving.look(now_s)
    assert GRACE_S + 25 <= now_s <= GRACE_S + 27
    assert waits.asked_again == 1


def test_nobody_is_slow_whom_the_broker_did_not_read_from() -> None:
    arriving = Arriving(MAX)
    held, waits = Peer("10.0.0.1", receiving=False), Peer("10.0.0.2")
    assert arriving.ask(held, LARGE, 0)
    assert not arriving.ask(waits, LARGE, 0)
    now_s = drip(arriving, [], 0, 12)
    held.receiving = True
    arriving.look(now_s + 2 * LOOK_S)
    assert not held.closed, "the broker was away"
    drip(arriving, [], now_s + 2 * LOOK_S, 4)
    assert held.closed


def test_a_receiver_that_is_gone_leaves_nothing_behind() -> None:
    arriving = Arriving(MAX)
    peers = holding(arriving, 40, addresses=3) + holding(arriving, 400, ORDINARY_BYTES)
    for peer in reversed(peers):
        arriving.end(peer, 1)
    assert (arriving.held_bytes, arriving.waiting) == (0, 0)
    assert not any(line.held_by or line.waiting or line.holders for line in arriving._lines)


@pytest.mark.parametrize("bytes_per_s", [2, 2 * SLOW_BYTES_PER_S])
@pytest.mark.parametrize("ahead", [30, 200, 400])
def test_the_wait_behind_peers_of_ones_own_address_grows_with_their_number_alone(ahead: int, bytes_per_s: int) -> None:
    """Peers that were cut connect again, and stand behind. So many are let in at a time as the address may have; each
    is cut within seconds, be it slow or only late."""
    arriving, size, now_s = Arriving(MAX), 1900 * 1024, 0.0
    peers = [Peer() for _ in range(ahead)]
    for peer in peers:
        arriving.ask(peer, size, now_s)
    newcomer = Peer()
    assert not arriving.ask(newcomer, size, now_s)
    at_a_time = MAX // 4 // 2 // size
    held_s = COUNTED_S if bytes_per_s < SLOW_BYTES_PER_S else GRACE_S + size / ARRIVAL_BYTES_PER_S
    while not newcomer.asked_again:
        step_s = arriving.look(now_s)
        for number, peer in enumerate(peers):
            peer.arrived_bytes += int(bytes_per_s * step_s)
            if peer.closed:
                peers[number] = Peer()
                arriving.ask(peers[number], size, now_s)
        now_s += step_s
        assert now_s <= math.ceil(ahead / at_a_time) * (held_s + 2 * PRESSED_LOOK_S) + LOOK_S

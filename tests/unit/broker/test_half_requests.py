"""Unfinished requests within an ordinary buffer: beyond a bound the late ones are closed, and no others."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from cordwood.broker.network.arriving import GRACE_S, LOOK_S
from cordwood.broker.network.half_requests import CLOSED_PER_LOOK, HalfRequests

BUFFER_BYTES = 128 * 1024
MOST = 10 * BUFFER_BYTES
LOOKS = int(GRACE_S / LOOK_S) + 1


@dataclass(eq=False)
class Peer:
    requests: int = 0
    arrived_bytes: int = 1
    receiving: bool = True
    paused: bool = False
    closed: list[str] = field(default_factory=list)

    def close(self, reason: str) -> None:
        self.closed.append(reason)


class Looks:
    """Looks at peers that each hold a buffer."""

    def __init__(self) -> None:
        self.half_requests = HalfRequests(MOST, BUFFER_BYTES)
        self.now_s = 0.0

    def look(self, peers: list[Peer], looks: int = LOOKS, *, pause_s: float = LOOK_S) -> list[Peer]:
        """Returns the peers that are closed."""
        for _ in range(looks):
            self.now_s += pause_s
            held = [peer for peer in peers if not peer.closed]
            self.half_requests.look(held, len(held) * BUFFER_BYTES, self.now_s)
        return [peer for peer in peers if peer.closed]


def test_late_peers_are_closed_until_there_is_room() -> None:
    peers = [Peer() for _ in range(15)]
    assert len(Looks().look(peers)) == 5


def test_those_that_had_most_time_are_closed_first() -> None:
    late, looks = [Peer() for _ in range(11)], Looks()
    assert not looks.look(late, LOOKS - 1)
    assert looks.look([*(Peer() for _ in range(20)), *late], 1) == late


def test_very_many_are_closed_in_several_looks() -> None:
    peers, looks = [Peer() for _ in range(2 * CLOSED_PER_LOOK)], Looks()
    assert len(looks.look(peers)) == CLOSED_PER_LOOK
    assert len(looks.look(peers, 1)) == len(peers) - 10


def test_within_the_bound_nobody_is_closed() -> None:
    assert not Looks().look([Peer() for _ in range(10)], 100)


def test_clients_over_their_quotas_count() -> None:
    assert len(Looks().look([Peer(receiving=False, paused=True) for _ in range(15)])) == 5


@pytest.mark.parametrize("make", [partial(Peer, arrived_bytes=0), partial(Peer, receiving=False)])
def test_peers_that_owe_nothing_stay(make: Callable[[], Peer]) -> None:
    assert not Looks().look([make() for _ in range(20)], 100)


def test_each_request_has_time_of_its_own() -> None:
    peers, looks = [Peer() for _ in range(20)], Looks()
    for _ in range(10):
        assert not looks.look(peers, LOOKS - 1)
        for peer in peers:
            peer.requests += 1


def test_a_pause_of_the_broker_does_not_count() -> None:
    peers, looks = [Peer() for _ in range(20)], Looks()
    looks.look(peers, 1)
    assert not looks.look(peers, 1, pause_s=3600)

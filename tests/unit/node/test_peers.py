"""The port to other brokers without sockets: a broker's requests to itself, and the simulator's network."""

from typing import Any

import pytest
from simulation.world.machine import Machine
from simulation.world.world import World

from cordwood.model.moment import Moment
from cordwood.node.loop.peers import PeerAnswer, PeerFailed, PeerFailure, PeerOutcome, PeerRequest, common_version
from cordwood.wire.apis import ApiKey

MYSELF, OTHER, NOBODY = 1, 2, 3


def metadata(broker_id: int, **changes: Any) -> PeerRequest:
    return PeerRequest(broker_id, ApiKey.METADATA, (4, 12), {"topics": []}, 1000)._replace(**changes)


class Pair:
    """Two brokers; the first has a port to both."""

    def __init__(self) -> None:
        self.world = World(1, machines=2).start()
        self.mine, self.other = self.world.machines

    def broker(self, broker_id: int) -> Machine:
        return self.world.machine_of(broker_id)

    def ask(self, request: PeerRequest) -> list[PeerOutcome]:
        outcomes: list[PeerOutcome] = []

        def done(outcome: PeerOutcome, now: Moment) -> None:
            assert now == self.mine.clock.now()
            outcomes.append(outcome)

        self.mine.node.peers.send(request, done)
        assert not outcomes, "done was called inside of send"
        return outcomes


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.mark.parametrize("broker_id", [MYSELF, OTHER])
def test_a_request_is_answered_once_in_the_highest_common_version(pair: Pair, broker_id: int) -> None:
    outcomes = pair.ask(metadata(broker_id))
    pair.world.settle()
    (answer,) = outcomes
    assert isinstance(answer, PeerAnswer)
    assert answer.version == 12
    assert answer.body.cluster_id == pair.broker(broker_id).node.image.cluster_id
    pair.world.advance(2000)
    assert len(outcomes) == 1


@pytest.mark.parametrize("broker_id", [MYSELF, OTHER])
def test_requests_that_change_something_go_through_the_same_handlers(pair: Pair, broker_id: int) -> None:
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    request = PeerRequest(broker_id, ApiKey.CREATE_TOPICS, (5, 7), {"topics": [topic], "timeout_ms": 1000}, 1000)
    outcomes = pair.ask(request)
    pair.world.settle()
    (answer,) = outcomes
    assert isinstance(answer, PeerAnswer)
    assert answer.body.topics[0].error_code == 0
    assert "t" in pair.broker(broker_id).node.image.topics


@pytest.mark.parametrize("broker_id", [MYSELF, OTHER])
def test_a_version_that_is_not_served_is_told(pair: Pair, broker_id: int) -> None:
    outcomes = pair.ask(metadata(broker_id, versions=(90, 99)))
    pair.world.settle()
    (failed,) = outcomes
    assert isinstance(failed, PeerFailed)
    assert (failed.reason, failed.perhaps_handled) == (PeerFailure.UNSUPPORTED_VERSION, False)


@pytest.mark.parametrize("broker_id", [MYSELF, OTHER])
def test_a_request_that_waits_longer_than_its_timeout_fails_and_its_late_answer_is_dropped(
    pair: Pair, broker_id: int
) -> None:
    topic = {"name": "t", "num_partitions": -1, "replication_factor": -1}
    topic["assignments"] = [{"partition_index": 0, "broker_ids": [broker_id]}]
    pair.world.ask_at(broker_id, ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=1000)
    topic_id = pair.broker(broker_id).node.image.topics["t"].topic_id
    values = {
        "max_wait_ms": 5000,
        "min_bytes": 1,
        "topics": [{"topic_id": topic_id, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}],
    }
    outcomes = pair.ask(PeerRequest(broker_id, ApiKey.FETCH, (13, 16), values, 1000))
    pair.world.settle()
    assert outcomes == []
    pair.world.advance(1000)
    (failed,) = outcomes
    assert isinstance(failed, PeerFailed)
    assert (failed.reason, failed.perhaps_handled) == (PeerFailure.TIMED_OUT, True)
    pair.world.advance(10_000)
    pair.world.settle()
    assert len(outcomes) == 1
    again = pair.ask(metadata(broker_id))
    pair.world.settle()
    assert isinstance(again[0], PeerAnswer)


def test_brokers_that_are_unknown_dead_or_die_are_distinct_failures(pair: Pair) -> None:
    unknown = pair.ask(metadata(NOBODY))
    under_way = pair.ask(metadata(OTHER))
    pair.other.kill()
    dead = pair.ask(metadata(OTHER))
    pair.world.settle()
    failures = [outcome for (outcome,) in (unknown, under_way, dead) if isinstance(outcome, PeerFailed)]
    assert [(failed.reason, failed.perhaps_handled) for failed in failures] == [
        (PeerFailure.UNKNOWN_BROKER, False),
        (PeerFailure.DISCONNECTED, True),
        (PeerFailure.NO_CONNECTION, False),
    ]
    pair.other.start()
    pair.world.settle()
    back = pair.ask(metadata(OTHER))
    pair.world.settle()
    assert isinstance(back[0], PeerAnswer)


def test_a_link_between_brokers_that_is_cut_one_way_holds_requests_or_answers(pair: Pair) -> None:
    links = pair.world.links
    for way in ((MYSELF, OTHER), (OTHER, MYSELF)):
        links.cut(*way)
        healed = pair.ask(metadata(OTHER))
        late = pair.ask(metadata(OTHER, timeout_ms=100))
        pair.world.advance(99)
        assert healed == late == []
        pair.world.advance(1)
        (failed,) = late
        assert isinstance(failed, PeerFailed)
        assert (failed.reason, failed.perhaps_handled) == (PeerFailure.TIMED_OUT, True)
        links.heal(*way)
        pair.world.settle()
        assert isinstance(healed[0], PeerFailed), "a late answer closes the connection, as on a real one"
        answered = pair.ask(metadata(OTHER))
        pair.world.settle()
        assert isinstance(answered[0], PeerAnswer)


@pytest.mark.parametrize(
    ("wanted", "served", "version"),
    [((1, 5), (0, 3), 3), ((1, 5), (4, 9), 5), ((1, 2), (3, 4), None), ((3, 4), (1, 2), None), ((0, 0), None, None)],
)
def test_the_highest_version_in_both_ranges_is_used(
    wanted: tuple[int, int], served: tuple[int, int] | None, version: int | None
) -> None:
    assert common_version(wanted, served) == version

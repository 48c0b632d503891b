"""Clients that read from the follower in their rack (KIP-392), on three brokers in three racks."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.game import FENCES_LIFTED_MS
from simulation.world.exchange import Exchange
from simulation.world.links import STORE
from simulation.world.world import SHORT_LEASE_MS, World, rack_of
from tests.simulation.test_repair_on_machines import fill, rot
from tests.simulation.test_replication_on_machines import (
    ROUND_MS,
    TOPIC,
    begin_produce,
    create,
    cut_off,
    elect,
    heal,
    hosted,
    image,
    log,
    others,
    told,
)

from cordwood.model.errors import ErrorCode
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.replication_settings import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from cordwood.model.settings.setting import InvalidSetting
from cordwood.node.replication.near_reads import (
    BACK_FOR_MS,
    RECONNECTED_AFTER_MS,
    TELL_LEADERSHIP_AGAIN_MS,
    TELL_LEADERSHIP_FOR_MS,
)
from cordwood.records.batch import batches_in
from cordwood.wire.apis import ApiKey

LAG_MS = 5_000
SETTINGS = {"replica.lag.time.max.ms": str(LAG_MS), "replica.selector.class": RACK_AWARE_SELECTOR}
LONG_MS = 30_000


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, settings=SETTINGS, machines=3, racks=True).start()
    world.settle()
    yield world
    world.kill()


def begin_fetch(
    world: World, at: int, offset: int = 0, *, rack: str = "", version: int = 12, wait_ms: int = 0, **fields: int
) -> Exchange:
    asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **fields}
    values = {
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [asked]}],
        "forgotten_topics_data": [],
        "rack_id": rack,
    }
    return world.begin_at(at, ApiKey.FETCH, version, **values)


def found(exchange: Exchange) -> Any:
    assert exchange.answered, exchange.state
    return exchange.answer.responses[0].partitions[0]


def fetched(world: World, at: int, offset: int = 0, **options: Any) -> Any:
    return found(begin_fetch(world, at, offset, **options))


def error(world: World, at: int, offset: int = 0, **options: Any) -> str:
    return ErrorCode(fetched(world, at, offset, **options).error_code).name


def offsets(part: Any) -> list[int]:
    return [
        offset for _, head in batches_in(part.records or b"") for offset in range(head.base_offset, head.next_offset)
    ]


def written(world: World, count: int = 3) -> tuple[int, int]:
    """A topic with this many records on all replicas. Returns its leader and a follower."""
    leader = create(world)
    for number in range(count):
        assert told(begin_produce(world, leader, b"%d" % number)) == "NONE"
    world.advance(ROUND_MS)
    return leader, others(leader)[0]


def test_the_leader_sends_a_client_to_the_follower_in_its_rack_which_serves_it(world: World) -> None:
    leader, near = written(world)
    sent = fetched(world, leader, rack=rack_of(near))
    assert (sent.preferred_read_replica, sent.error_code, offsets(sent), sent.high_watermark) == (near, 0, [], 3)
    served = fetched(world, near, rack=rack_of(near))
    assert (offsets(served), served.high_watermark, served.last_stable_offset) == ([0, 1, 2], 3, 3)
    assert served.preferred_read_replica == -1
    assert world.machine_of(leader).node.near_reads.sent_near == 1
    assert world.machine_of(near).node.near_reads.served_bytes == len(served.records)


def test_a_client_without_a_rack_or_in_the_leaders_own_or_in_an_unknown_one_reads_at_the_leader(world: World) -> None:
    leader, near = written(world)
    for rack in ("", rack_of(leader), "elsewhere"):
        assert offsets(fetched(world, leader, rack=rack)) == [0, 1, 2], rack
    assert offsets(fetched(world, leader, version=10)) == [0, 1, 2]
    assert error(world, near, version=10) == "NOT_LEADER_OR_FOLLOWER"


@pytest.mark.parametrize("selector", ["", LEADER_SELECTOR])
def test_without_the_selector_only_leaders_serve(selector: str) -> None:
    world = World(seed=1, settings={"replica.selector.class": selector}, machines=3, racks=True).start()
    world.settle()
    leader, near = written(world)
    assert offsets(fetched(world, leader, rack=rack_of(near))) == [0, 1, 2]
    assert error(world, near) == "NOT_LEADER_OR_FOLLOWER"
    assert world.machine_of(near).node.near_reads.sent_back == 0
    # While the setting is rolled out, leaders that have it send clients to followers that do not have it yet.
    assert offsets(fetched(world, near, rack=rack_of(near))) == [0, 1, 2]
    world.kill()


def test_a_client_that_comes_back_from_the_follower_is_served_by_the_leader_for_a_while(world: World) -> None:
    leader, near = written(world)
    connection = world.connect(leader)

    def ask() -> Any:
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "session_epoch": -1}
        topics = [{"topic": TOPIC, "partitions": [asked]}]
        exchange = connection.request(ApiKey.FETCH, 12, {**values, "topics": topics, "rack_id": rack_of(near)})
        world.settle()
        return found(exchange)

    assert (ask().preferred_read_replica, offsets(ask())) == (near, [0, 1, 2])
    world.advance(BACK_FOR_MS - 1)
    assert ask().preferred_read_replica == -1
    world.advance(1)
    assert (ask().preferred_read_replica, offsets(ask())) == (near, [0, 1, 2])


def test_a_client_is_not_sent_to_a_follower_that_lacks_its_offset_or_is_not_in_sync(world: World) -> None:
    leader, near = written(world)
    cut_off(world, near)
    begin_produce(world, leader, b"not on the follower", acks=1)
    assert fetched(world, leader, 3, rack=rack_of(near)).preferred_read_replica == near
    assert fetched(world, leader, 4, rack=rack_of(near)).preferred_read_replica == -1
    world.advance(2 * LAG_MS)
    assert near not in image(world, leader).isr
    assert offsets(fetched(world, leader, rack=rack_of(near))) == [0, 1, 2, 3]


def test_a_follower_shows_nothing_above_its_high_watermark(world: World) -> None:
    leader, near = written(world)
    cut_off(world, others(leader)[1])
    begin_produce(world, leader, b"not on all replicas", acks=1)
    world.advance(ROUND_MS)
    assert (log(world, near).offsets.end, hosted(world, leader).replica.high_watermark) == (4, 3)
    served = fetched(world, near, 2)
    assert (offsets(served), served.high_watermark) == ([2], 3)
    waits = begin_fetch(world, near, 3, wait_ms=100)
    assert not waits.answered
    world.advance(200)
    assert (found(waits).error_code, offsets(found(waits))) == (0, [])


def test_a_waiting_client_of_a_follower_gets_a_record_as_soon_as_it_is_committed(world: World) -> None:
    leader, near = written(world)
    waits = begin_fetch(world, near, 3, wait_ms=LONG_MS)
    assert not waits.answered
    # No time passes from here on: each step wakes the next one.
    produced = begin_produce(world, leader, b"fresh")
    assert told(produced) == "NONE"
    assert offsets(found(waits)) == [3]
    waits = begin_fetch(world, near, 4, wait_ms=LONG_MS)
    begin_produce(world, leader, b"fresher")
    assert offsets(found(waits)) == [4]


def test_a_follower_without_clients_does_not_ask_for_news_of_the_high_watermark(world: World) -> None:
    leader, near = written(world)
    before = hosted(world, near).high_watermark
    begin_produce(world, leader, b"fresh")
    assert hosted(world, leader).replica.high_watermark == before + 1
    assert hosted(world, near).high_watermark == before
    world.advance(ROUND_MS)
    assert hosted(world, near).high_watermark == before + 1


@pytest.mark.parametrize("offset", [0, 99])
def test_a_follower_without_the_offset_sends_its_client_to_the_leader_with_its_position(
    world: World, offset: int
) -> None:
    leader, near = written(world)
    topic = {"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 2}]}
    world.ask_at(leader, ApiKey.DELETE_RECORDS, 2, topics=[topic], timeout_ms=1000)
    world.advance(ROUND_MS)
    assert log(world, near).offsets.start == 2
    assert error(world, near, offset) == "OFFSET_NOT_AVAILABLE"
    assert error(world, leader, offset, rack=rack_of(near)) == "OFFSET_OUT_OF_RANGE"
    assert world.machine_of(near).node.near_reads.sent_back == 1


def test_a_follower_checks_the_leader_epoch_of_its_clients(world: World) -> None:
    leader, near = written(world)
    elect(world, leader)
    world.advance(ROUND_MS)
    epoch = image(world).leader_epoch
    assert error(world, near, current_leader_epoch=epoch - 1) == "FENCED_LEADER_EPOCH"
    assert error(world, near, current_leader_epoch=epoch + 1) == "UNKNOWN_LEADER_EPOCH"
    assert error(world, near, current_leader_epoch=epoch) == "NONE"


def test_a_follower_that_is_behind_does_not_tell_a_client_that_its_history_diverged(world: World) -> None:
    _, near = written(world)
    epoch = image(world).leader_epoch
    agrees = fetched(world, near, 2, last_fetched_epoch=epoch)
    assert (offsets(agrees), agrees.diverging_epoch.epoch) == ([2], -1)
    assert error(world, near, 2, last_fetched_epoch=epoch + 1) == "OFFSET_NOT_AVAILABLE"
    assert error(world, near, 4, last_fetched_epoch=epoch) == "OFFSET_NOT_AVAILABLE"


def test_a_follower_that_left_the_in_sync_set_sends_its_waiting_clients_back(world: World) -> None:
    leader, near = written(world)
    waits = begin_fetch(world, near, 3, wait_ms=LONG_MS)
    elect(world, leader, isr=tuple(each for each in (1, 2, 3) if each != near))
    world.settle()
    assert ErrorCode(found(waits).error_code).name == "NOT_LEADER_OR_FOLLOWER"


def test_a_client_of_a_follower_hears_of_a_new_leader(world: World) -> None:
    leader, near = written(world)
    third = others(leader)[1]
    waits = begin_fetch(world, near, 3, wait_ms=LONG_MS, version=12)
    elect(world, third)
    assert ErrorCode(found(waits).error_code).name in ("NOT_LEADER_OR_FOLLOWER", "NONE")
    world.advance(ROUND_MS)
    begin_produce(world, third, b"by the new leader")
    world.advance(ROUND_MS)
    assert offsets(fetched(world, near, 3)) == [3]


def test_a_client_of_a_follower_that_becomes_the_leader_reads_on(world: World) -> None:
    _, near = written(world)
    waits = begin_fetch(world, near, 3, wait_ms=LONG_MS)
    elect(world, near)
    world.advance(ROUND_MS)
    if waits.answered:
        assert found(waits).error_code == 0
        waits = begin_fetch(world, near, 3, wait_ms=LONG_MS)
    begin_produce(world, near, b"fresh")
    world.advance(ROUND_MS)
    assert offsets(found(waits)) == [3]


class Reader:
    """A client of one broker, in that broker's rack, which names its software and its leader epoch."""

    def __init__(self, world: World, at: int, software: str = "confluent-kafka-python") -> None:
        self._world = world
        self._rack = rack_of(at)
        self._topic_id = world.machine_of(at).node.image.topic_id(TOPIC)
        self._connection = world.connect(at)
        self._connection.request(
            ApiKey.API_VERSIONS, 3, {"client_software_name": software, "client_software_version": "1"}
        )
        world.settle()

    def begin(self, offset: int, epoch: int, wait_ms: int = LONG_MS) -> Exchange:
        asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, "current_leader_epoch": epoch}
        values = {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
        topics = [{"topic_id": self._topic_id, "partitions": [asked]}]
        exchange = self._connection.request(
            ApiKey.FETCH, 16, {**values, "topics": topics, "rack_id": self._rack, "isolation_level": 0}
        )
        self._world.settle()
        return exchange

    def told(self, offset: int, epoch: int) -> tuple[str, int]:
        """The error of a fetch that does not wait, and the leader that its answer names."""
        return refusal(found(self.begin(offset, epoch, wait_ms=0)))


def refusal(part: Any) -> tuple[str, int]:
    return ErrorCode(part.error_code).name, part.current_leader.leader_id


def test_a_librdkafka_client_of_a_follower_that_becomes_the_leader_is_told_so_without_an_error(world: World) -> None:
    """FENCED_LEADER_EPOCH and the leader's name in one answer make librdkafka stay at the old leader, which may be
    dead."""
    _, near = written(world)
    old = image(world).leader_epoch
    waits = Reader(world, near).begin(3, old)
    assert not waits.answered
    elect(world, near)
    part = found(waits)
    assert (refusal(part), part.current_leader.leader_epoch, offsets(part)) == (("NONE", near), old + 1, [])
    assert [each.node_id for each in waits.answer.node_endpoints] == [near]


def test_a_librdkafka_client_that_asks_in_its_old_epoch_again_is_told_again_after_a_pause(world: World) -> None:
    _, near = written(world)
    old = image(world).leader_epoch
    reader = Reader(world, near)
    elect(world, near)
    again = reader.begin(3, old)
    begin_produce(world, near, b"in the new epoch")
    assert not again.answered
    world.advance(TELL_LEADERSHIP_AGAIN_MS)
    assert (refusal(found(again)), offsets(found(again))) == (("NONE", near), [])
    assert offsets(found(reader.begin(3, old + 1))) == [3]


def test_a_librdkafka_client_that_does_not_hear_of_the_leadership_is_refused_and_asks_for_metadata(
    world: World,
) -> None:
    _, near = written(world)
    old = image(world).leader_epoch
    reader = Reader(world, near)
    elect(world, near)
    world.advance(TELL_LEADERSHIP_FOR_MS - 1)
    assert reader.told(3, old) == ("NONE", near)
    world.advance(1)
    assert reader.told(3, old) == ("FENCED_LEADER_EPOCH", -1)


def test_other_clients_of_a_follower_that_becomes_the_leader_are_refused_with_the_leaders_name(world: World) -> None:
    _, near = written(world)
    old = image(world).leader_epoch
    waits = Reader(world, near, "apache-kafka-java").begin(3, old)
    elect(world, near)
    assert refusal(found(waits)) == ("FENCED_LEADER_EPOCH", near)


def test_a_librdkafka_client_of_a_follower_that_gets_another_leader_is_refused_with_its_name(world: World) -> None:
    leader, near = written(world)
    third = others(leader)[1]
    old = image(world).leader_epoch
    waits = Reader(world, near).begin(3, old)
    elect(world, third)
    world.advance(ROUND_MS)
    error, named = refusal(found(waits))
    assert (error in ("NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH"), named) == (True, third)


def test_a_new_leader_sends_nobody_to_a_follower_that_has_not_heard_of_it(world: World) -> None:
    """The follower would refuse, and the client would be served by the leader for a while."""
    leader, near = written(world)
    third = others(leader)[1]
    elect(world, third)
    sent: list[int] = []
    for _ in range(ROUND_MS):
        part = fetched(world, third, 3, rack=rack_of(near))
        if part.preferred_read_replica == near:
            sent.append(ErrorCode(fetched(world, near, 3, rack=rack_of(near)).error_code))
        world.advance(1)
    assert set(sent) == {ErrorCode.NONE}


def test_a_leader_sends_nobody_to_a_follower_that_has_just_come_back(world: World) -> None:
    """A client that could not connect to the follower while it was away waits before it tries again."""
    leader, near = written(world)
    world.machine_of(near).kill()
    world.advance(ROUND_MS)
    world.machine_of(near).start()
    world.advance(RECONNECTED_AFTER_MS - 2 * ROUND_MS)
    assert near in image(world, leader).isr
    assert fetched(world, leader, 3, rack=rack_of(near)).preferred_read_replica == -1
    world.advance(2 * ROUND_MS)
    assert fetched(world, leader, 3, rack=rack_of(near)).preferred_read_replica == near


def test_a_follower_that_is_cut_off_from_its_leader_sends_its_clients_back_for_good(world: World) -> None:
    leader, near = written(world)
    cut_off(world, near)
    world.advance(LAG_MS // 2)
    assert error(world, near) == "NOT_LEADER_OR_FOLLOWER"
    # The leader still has the follower in the in-sync set, and judges as the follower does.
    assert near in image(world, leader).isr
    assert fetched(world, leader, rack=rack_of(near)).preferred_read_replica == -1
    heal(world, near)
    world.advance(2 * ROUND_MS)
    assert fetched(world, leader, rack=rack_of(near)).preferred_read_replica == near
    assert offsets(fetched(world, near)) == [0, 1, 2]


def test_a_follower_whose_lease_is_over_serves_nobody() -> None:
    world = World(
        seed=1, settings={**SETTINGS, "replica.lag.time.max.ms": "60000"}, machines=3, clustered=True, racks=True
    )
    world.start().advance(FENCES_LIFTED_MS)
    _, near = written(world)
    assert error(world, near) == "NONE"
    waits = begin_fetch(world, near, 3, wait_ms=SHORT_LEASE_MS * 3 // 4)
    world.links.cut(STORE, near)
    world.advance(SHORT_LEASE_MS * 3 // 4)
    assert ErrorCode(found(waits).error_code).name == "NOT_LEADER_OR_FOLLOWER"
    assert error(world, near) == "NOT_LEADER_OR_FOLLOWER"
    world.kill()


def test_a_follower_serves_nobody_while_its_image_does_not_show_its_registration(world: World) -> None:
    _, near = written(world)
    assert error(world, near) == "NONE"
    serving = world.machine_of(near).node.serving
    serving.registered(serving.broker_epoch + 1, 5, world.clock.boot_ms)
    assert error(world, near) == "NOT_LEADER_OR_FOLLOWER"


def test_a_follower_serves_nobody_before_the_leader_of_the_epoch_has_answered(world: World) -> None:
    leader, near = written(world)
    third = others(leader)[1]
    world.links.cut(near, third)
    world.links.cut(third, near)
    elect(world, third)
    assert hosted(world, near).role.leader == third
    assert error(world, near) == "NOT_LEADER_OR_FOLLOWER"


def test_a_client_with_a_session_is_sent_to_the_follower_though_nothing_else_is_news(world: World) -> None:
    leader, near = written(world)
    cut_off(world, near)
    world.advance(LAG_MS // 2)
    asked = {"partition": 0, "fetch_offset": 3, "partition_max_bytes": 1 << 20}
    values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "rack_id": rack_of(near)}
    connection = world.connect(leader)

    def fetch(**session: Any) -> Any:
        exchange = connection.request(ApiKey.FETCH, 12, {**values, "forgotten_topics_data": [], **session})
        world.settle()
        return exchange.answer

    first = fetch(session_id=0, session_epoch=0, topics=[{"topic": TOPIC, "partitions": [asked]}])
    assert first.responses[0].partitions[0].preferred_read_replica == -1
    assert fetch(session_id=first.session_id, session_epoch=1, topics=[]).responses == []
    heal(world, near)
    world.advance(2 * ROUND_MS)
    (topic,) = fetch(session_id=first.session_id, session_epoch=2, topics=[]).responses
    assert topic.partitions[0].preferred_read_replica == near


def test_another_selector_is_refused_with_the_names_of_those_that_are_known() -> None:
    with pytest.raises(InvalidSetting, match=RACK_AWARE_SELECTOR):
        BrokerSettings.from_texts({"replica.selector.class": "com.example.Nearest"})


def test_a_client_that_meets_damage_at_the_follower_is_told_to_go_to_the_leader(world: World) -> None:
    leader = create(world, segment_bytes="1000")
    fill(world, leader)
    near = others(leader)[0]
    rot(world, near, 0, position=8, with_bytes=b"\x7f\xff\xff\xff")
    world.machine_of(near).kill()
    world.machine_of(near).start()
    world.advance(2 * LAG_MS)
    assert near in image(world, leader).isr
    assert error(world, near, rack=rack_of(near)) == "KAFKA_STORAGE_ERROR"
    assert error(world, leader) == "NONE"

"""Leaders and coordinators that move, and answers that mean "not now"."""

import time

import pytest
from tests.unit.client.scripted_cluster import TOPIC, ScriptedCluster

from cordwood.client.cluster import LATEST, Cluster, Fetched, OffsetRange, Produced
from cordwood.client.errors import EndNotReached, RequestRefused
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.records.batch import batches_in, read_header
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
PRODUCER_ID = 7


def batches(count: int, *, idempotent: bool = True) -> list[bytearray]:
    """Batches with one record each."""
    producer_id = PRODUCER_ID if idempotent else -1
    return [
        build_batch(
            [(0, None, str(number).encode(), ())],
            producer_id=producer_id,
            producer_epoch=0 if idempotent else -1,
            base_sequence=number if idempotent else -1,
        )
        for number in range(count)
    ]


def stored(cluster: ScriptedCluster, partition: TopicPartition) -> list[int]:
    return [read_header(batch).base_sequence for batch in cluster.log[partition.partition]]


def offsets_in(answers: list[Fetched]) -> list[int]:
    return [header.base_offset for answer in answers for _, header in batches_in(answer.records)]


def test_partitions_of_two_leaders_are_written_and_read() -> None:
    with ScriptedCluster() as brokers, brokers.client() as client:
        brokers.leaders[1] = 2
        assert client.produce({FIRST: batches(3), SECOND: batches(2)}) == {
            FIRST: Produced(0, 3),
            SECOND: Produced(0, 2),
        }
        assert client.list_offsets({FIRST: LATEST, SECOND: LATEST})[SECOND].offset == 2
        assert offsets_in(list(client.stream(SECOND, 0, 2))) == [0, 1]
        assert {node for node, key in brokers.asked if key == ApiKey.PRODUCE} == {1, 2}


@pytest.mark.parametrize("place", range(6))
def test_a_leader_that_moves_between_any_two_batches_gets_all_of_them_in_order(place: int) -> None:
    with ScriptedCluster() as brokers, brokers.client() as client:
        pipeline = client.pipeline()
        for number, batch in enumerate(batches(12)):
            if number == place:
                brokers.leaders[0] = 2
            pipeline.send({FIRST: [batch]})
        assert pipeline.finish() == {FIRST: Produced(0, 12)}
        assert stored(brokers, FIRST) == list(range(12))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ],
)
@pytest.mark.parametrize("times", [1, 3, 7])
def test_a_batch_that_is_refused_for_now_is_not_overtaken(code: ErrorCode, times: int) -> None:
    with ScriptedCluster() as brokers, brokers.client() as client:
        brokers.refuse(ApiKey.PRODUCE, code, times)
        assert client.produce({FIRST: batches(8), SECOND: batches(8)}) == {
            FIRST: Produced(0, 8),
            SECOND: Produced(0, 8),
        }
        assert stored(brokers, FIRST) == stored(brokers, SECOND) == list(range(8))


def test_batches_without_a_producer_are_not_overtaken_either() -> None:
    with ScriptedCluster() as brokers, brokers.client() as client:
        brokers.refuse(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, 3)
        client.produce({FIRST: batches(8, idempotent=False)})
        values = [bytes(batch)[-3:-1] for batch in brokers.log[0]]
        assert values == sorted(values)
        assert len(values) == 8


@pytest.mark.parametrize("place", range(4))
def test_a_connection_that_breaks_before_anything_is_stored_does_not_let_a_later_batch_be_first(place: int) -> None:
    """A broker that does not know the producer would take the later batch, and lose the earlier ones."""
    with ScriptedCluster() as brokers, brokers.client() as client:
        brokers.refuse(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, place + 1)
        pipeline = client.pipeline()
        for number, batch in enumerate(batches(10)):
            pipeline.send({FIRST: [batch]})
            if number == place:
                brokers.hang_up(1)
        pipeline.finish()
        assert stored(brokers, FIRST) == list(range(10))


@pytest.mark.parametrize("place", range(4))
def test_a_new_leader_gets_nothing_while_the_old_one_has_not_answered(place: int) -> None:
    """The metadata may be renewed for another partition while batches are on their way."""
    with ScriptedCluster() as brokers, brokers.client() as client:
        brokers.refuse(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, place + 1)
        pipeline = client.pipeline()
        for number, batch in enumerate(batches(10)):
            pipeline.send({FIRST: [batch]})
            if number == place:
                brokers.leaders[0] = 2
                client.topics([TOPIC])
        pipeline.finish()
        assert stored(brokers, FIRST) == list(range(10))


def test_what_was_stored_before_the_connection_broke_is_not_stored_again() -> None:
    with ScriptedCluster() as brokers, brokers.client() as client:
        pipeline = client.pipeline()
        for number, batch in enumerate(batches(20)):
            pipeline.send({FIRST: [batch]})
            if number % 6 == 5:
                brokers.hang_up(1)
        pipeline.finish()
        assert stored(brokers, FIRST) == list(range(20))


def test_a_refusal_that_stays_is_told_when_the_time_is_up() -> None:
    with ScriptedCluster() as brokers, brokers.client(retry_timeout_ms=50) as client:
        brokers.refuse(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, 10_000)
        with pytest.raises(RequestRefused, match=r"orders-0: NOT_ENOUGH_REPLICAS .*given up after \d+ attempts"):
            client.produce({FIRST: batches(1)})


def test_a_stream_follows_the_leader() -> None:
    with ScriptedCluster() as brokers, brokers.client() as client:
        client.produce({FIRST: batches(10)})
        answers = []
        for answer in client.stream(FIRST, 0, 10):
            answers.append(answer)
            brokers.leaders[0] = 3 - brokers.leaders[0]
        assert offsets_in(answers) == list(range(10))


def test_a_stream_waits_while_nobody_leads() -> None:
    with ScriptedCluster() as brokers, brokers.client() as client:
        client.produce({FIRST: batches(2)})
        brokers.refuse(ApiKey.FETCH, ErrorCode.LEADER_NOT_AVAILABLE, 5)
        assert offsets_in(list(client.stream(FIRST, 0, 2))) == [0, 1]


class LaterClock:
    """The client's clock, which a test can put forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.later_s = 0.0
        monkeypatch.setattr("cordwood.client.retries.time", self)

    def monotonic(self) -> float:
        return time.monotonic() + self.later_s

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)


def test_time_that_the_caller_spends_elsewhere_is_not_spent_on_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is read last, or slowly, is retried as long as any other."""
    clock = LaterClock(monkeypatch)
    with ScriptedCluster() as brokers, brokers.client() as client:
        client.produce({FIRST: batches(2), SECOND: batches(2)})
        brokers.refuse(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
        streams = client.streams([OffsetRange(FIRST, 0, 2), OffsetRange(SECOND, 0, 2)])
        clock.later_s = 3600
        assert [offsets_in(list(stream)) for stream in streams] == [[0, 1], [0, 1]]


def test_answers_to_a_pipeline_that_are_taken_late_are_no_reason_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = LaterClock(monkeypatch)
    with ScriptedCluster() as brokers, brokers.client() as client:
        brokers.refuse(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS)
        pipeline = client.pipeline()
        pipeline.send({FIRST: batches(1)})
        clock.later_s = 3600
        assert pipeline.finish() == {FIRST: Produced(0, 1)}


def test_answers_without_records_are_not_taken_for_the_end_while_the_last_offset_has_some() -> None:
    """A broker that throttles, or that waits for remote storage, answers so."""
    with ScriptedCluster() as brokers, brokers.client() as client:
        client.produce({FIRST: batches(5)})
        brokers.hidden = 4
        assert offsets_in(list(client.stream(FIRST, 0, 5))) == [0, 1, 2, 3, 4]


def test_records_that_never_come_are_told() -> None:
    with ScriptedCluster() as brokers, brokers.client(retry_timeout_ms=50) as client:
        client.produce({FIRST: batches(5)})
        brokers.hidden = 1_000_000
        with pytest.raises(EndNotReached, match="has records up to offset 5 and does not send them"):
            list(client.stream(FIRST, 0, 5))


def test_offsets_are_asked_for_where_the_leader_is_now() -> None:
    with ScriptedCluster() as brokers, brokers.client() as client:
        client.produce({FIRST: batches(3), SECOND: batches(4)})
        brokers.leaders[1] = 2
        found = client.list_offsets({FIRST: LATEST, SECOND: LATEST})
        assert {partition: each.offset for partition, each in found.items()} == {FIRST: 3, SECOND: 4}


def test_a_partition_that_its_leader_does_not_know_is_absent_in_the_end() -> None:
    with ScriptedCluster() as brokers, brokers.client() as client:
        brokers.refuse(ApiKey.LIST_OFFSETS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 100)
        assert client.list_offsets({FIRST: LATEST}) == {}


def test_a_coordinator_that_moves_or_loads_is_found_again() -> None:
    with ScriptedCluster() as brokers, brokers.client() as client:
        brokers.refuse(ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, 2)
        brokers.refuse(ApiKey.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2)
        client.commit("a-group", {FIRST: 1})
        brokers.coordinator = 2
        client.commit("a-group", {FIRST: 2})
        assert brokers.positions == {TOPIC: 2}
        brokers.hang_up(2)
        client.commit("a-group", {FIRST: 3})
        assert brokers.positions == {TOPIC: 3}


def test_what_cannot_pass_is_told_at_once() -> None:
    with ScriptedCluster() as brokers, brokers.client() as client:
        brokers.refuse(ApiKey.OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID)
        with pytest.raises(RequestRefused, match="the group has members") as refused:
            client.commit("a-group", {FIRST: 1})
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_broker_that_is_too_old_for_our_first_question_answers_another() -> None:
    with ScriptedCluster() as brokers:
        brokers.knows_api_versions = False
        with brokers.client() as client:
            assert client.supports(ApiKey.FETCH)
            assert client.transaction_version == 0


def test_a_broker_has_one_connection_however_it_was_found() -> None:
    with ScriptedCluster() as brokers, brokers.client() as client:
        brokers.leaders[1] = 2
        client.produce({FIRST: batches(3), SECOND: batches(2)})
        client.commit("a-group", {FIRST: 1})
        assert client.topics([TOPIC])
        assert sum(key == ApiKey.API_VERSIONS for _, key in brokers.asked) == 2


def test_small_ranges_of_one_leader_share_a_request() -> None:
    partitions = [TopicPartition(TOPIC, index) for index in range(20)]
    with ScriptedCluster(partitions=20) as brokers, brokers.client() as client:
        for index in range(10, 20):
            brokers.leaders[index] = 2
        client.produce({partition: batches(1) for partition in partitions})
        ranges = [OffsetRange(partition, 0, 1) for partition in partitions]
        assert [offsets_in(list(stream)) for stream in client.streams(ranges)] == [[0]] * 20
        assert sum(key == ApiKey.FETCH for _, key in brokers.asked) == 2


def test_a_range_whose_partition_moves_while_others_share_its_request() -> None:
    partitions = [TopicPartition(TOPIC, index) for index in range(6)]
    with ScriptedCluster(partitions=6) as brokers, brokers.client() as client:
        client.produce({partition: batches(2) for partition in partitions})
        streams = client.streams([OffsetRange(partition, 0, 2) for partition in partitions])
        brokers.leaders[3] = 2
        brokers.refuse(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
        assert [offsets_in(list(stream)) for stream in streams] == [[0, 1]] * 6
        assert held(client) == 0


def test_leaving_many_streams_leaves_nothing_behind() -> None:
    partitions = [TopicPartition(TOPIC, index) for index in range(6)]
    with ScriptedCluster(partitions=6) as brokers, brokers.client() as client:
        client.produce({partition: batches(2) for partition in partitions})
        for taken in range(3):
            streams = client.streams([OffsetRange(partition, 0, 2) for partition in partitions])
            for stream in streams[:taken]:
                next(stream)
            for stream in streams:
                stream.close()
        assert client.list_offsets({FIRST: LATEST})[FIRST].offset == 2
        assert held(client) == 0


def test_leaving_a_stream_leaves_nothing_behind() -> None:
    with ScriptedCluster() as brokers, brokers.client() as client:
        client.produce({FIRST: batches(10)})
        for _ in range(3):
            next(client.stream(FIRST, 0, 10))
        assert offsets_in(list(client.stream(FIRST, 5, 10))) == [5, 6, 7, 8, 9]
        assert held(client) == 0


def held(client: Cluster) -> int:
    """The number of answers that connections keep for later."""
    links = client._brokers._links.values()
    return sum(len(link._connection._arrived) for link in links if link._connection is not None)

"""The raw client in transactions: its own, in both versions of the protocol, and the transactions of a family."""

import uuid
from collections.abc import Iterator

import pytest
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.interop.raw_batches import batch_of, records_of

from cordwood.client import versions
from cordwood.client.cluster import LATEST, Cluster, Isolation, ProducerIdentity
from cordwood.client.errors import EndNotReached, RequestRefused, UnknownTopic
from cordwood.client.settings import ClientSettings
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition

COMMITTED = Isolation.READ_COMMITTED


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[Cluster]:
    with Cluster(ClientSettings(broker.bootstrap)) as cluster:
        yield cluster


@pytest.fixture(params=["version 1", "version 2"])
def any_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Has the client take the cluster for one with an old transaction.version, and speak accordingly."""
    if request.param == "version 1":
        monkeypatch.setattr(versions.BrokerVersions, "transaction_version", 1)
    return str(request.param)


def new_id() -> str:
    return f"writer-{uuid.uuid4().hex[:12]}"


def write(
    cluster: Cluster, transactional_id: str, producer: ProducerIdentity, values: dict[TopicPartition, list[bytes]]
) -> None:
    cluster.produce(
        {
            partition: [batch_of(of_partition, producer=producer, sequence=0, transactional=True)]
            for partition, of_partition in values.items()
        },
        transactional_id=transactional_id,
    )


def committed_values(cluster: Cluster, partition: TopicPartition) -> list[bytes]:
    end = cluster.list_offsets({partition: LATEST}, COMMITTED)[partition].offset
    answers = cluster.stream(partition, 0, end, isolation=COMMITTED)
    return [value for _, value in records_of(answers, committed=True)]


def expect_committed(cluster: Cluster, partition: TopicPartition, values: list[bytes]) -> None:
    """Waits for the committed values: the end of a transaction is answered once decided, and its markers are written a
    moment later."""
    eventually(lambda: committed_values(cluster, partition) == values, what=f"{len(values)} committed records")


@pytest.mark.landing
def test_a_transaction_over_several_partitions(cluster: Cluster, make_topic: MakeTopic, any_version: str) -> None:
    name, transactional_id = make_topic(3), new_id()
    partitions = [TopicPartition(name, index) for index in range(3)]
    producer = cluster.init_producer_id(transactional_id)
    for commit, value in ((True, b"first"), (False, b"second"), (True, b"third")):
        write(cluster, transactional_id, producer, {partition: [value] * 3 for partition in partitions})
        following = cluster.end_transaction(transactional_id, producer, commit=commit)
        if any_version == "version 2":
            assert following == (producer.producer_id, producer.producer_epoch + 1)
        else:
            assert following == producer
            # Sequences go on, unless the epoch is raised.
            following = cluster.init_producer_id(transactional_id)
        producer = following
    for partition in partitions:
        expect_committed(cluster, partition, [b"first"] * 3 + [b"third"] * 3)


def test_many_small_transactions_one_after_the_other(cluster: Cluster, topic: str) -> None:
    """The next begins while the markers of the one before are still being written."""
    partition, transactional_id = TopicPartition(topic, 0), new_id()
    producer = cluster.init_producer_id(transactional_id)
    for number in range(20):
        write(cluster, transactional_id, producer, {partition: [str(number).encode()]})
        producer = cluster.end_transaction(transactional_id, producer, commit=number % 3 != 0)
    expect_committed(cluster, partition, [str(n).encode() for n in range(20) if n % 3 != 0])


def test_positions_within_a_transaction(cluster: Cluster, topic: str, any_version: str) -> None:
    partition, transactional_id, group = TopicPartition(topic, 0), new_id(), new_id()
    producer = cluster.init_producer_id(transactional_id)
    write(cluster, transactional_id, producer, {partition: [b"value"]})
    cluster.commit_in_transaction(transactional_id, producer, group, {partition: 7}, "batch 1")
    producer = cluster.end_transaction(transactional_id, producer, commit=True)
    assert cluster.committed_with_metadata(group) == {partition: (7, "batch 1")}
    cluster.commit_in_transaction(transactional_id, producer, group, {partition: 9})
    cluster.end_transaction(transactional_id, producer, commit=False)
    assert cluster.committed(group) == {partition: 7}


def test_an_older_producer_is_fenced_and_told_so(cluster: Cluster, topic: str) -> None:
    partition, transactional_id = TopicPartition(topic, 0), new_id()
    old = cluster.init_producer_id(transactional_id)
    write(cluster, transactional_id, old, {partition: [b"old"]})
    new = cluster.init_producer_id(transactional_id)
    assert new.producer_epoch > old.producer_epoch
    with pytest.raises(RequestRefused, match=transactional_id) as refused:
        cluster.end_transaction(transactional_id, old, commit=True)
    assert refused.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert committed_values(cluster, partition) == []


def test_a_stream_of_committed_records_waits_for_an_open_transaction_and_then_says_why(
    broker: RunningBroker, topic: str
) -> None:
    partition, transactional_id = TopicPartition(topic, 0), new_id()
    with Cluster(ClientSettings(broker.bootstrap, retry_timeout_ms=300, fetch_max_wait_ms=50)) as cluster:
        cluster.produce({partition: [batch_of([b"plain"])]})
        producer = cluster.init_producer_id(transactional_id)
        write(cluster, transactional_id, producer, {partition: [b"open"]})
        stream = cluster.stream(partition, 0, 2, isolation=COMMITTED)
        assert records_of([next(stream)]) == [(0, b"plain")]
        with pytest.raises(EndNotReached, match=r"ends at offset 1, where a transaction is open") as raised:
            next(stream)
        assert (raised.value.partition, raised.value.reached, raised.value.asked) == (partition, 1, 2)
        assert raised.value.log_end_offset == 2
        # Up to where it is readable there is nothing to wait for.
        assert records_of(cluster.stream(partition, 0, 1, isolation=COMMITTED)) == [(0, b"plain")]
        cluster.end_transaction(transactional_id, producer, commit=True)
        # The marker takes an offset, too, and holds no record: a range that ends behind it ends there.
        assert records_of(cluster.stream(partition, 0, 3, isolation=COMMITTED)) == [(0, b"plain"), (1, b"open")]


def test_a_range_beyond_the_end_of_the_log_is_waited_for_and_then_says_why(broker: RunningBroker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with Cluster(ClientSettings(broker.bootstrap, retry_timeout_ms=200, fetch_max_wait_ms=50)) as cluster:
        cluster.produce({partition: [batch_of([b"only"])]})
        stream = cluster.stream(partition, 0, 2)
        next(stream)
        with pytest.raises(EndNotReached, match=r"ends at offset 1 \(high watermark\)"):
            next(stream)


@pytest.mark.parametrize("end", [1, 2, 3, 4])
def test_aborted_records_and_markers_at_the_end_of_a_range_are_no_reason_to_wait(
    cluster: Cluster, topic: str, end: int
) -> None:
    """Offset 0: committed, 1: its marker, 2: aborted, 3: its marker."""
    partition, transactional_id = TopicPartition(topic, 0), new_id()
    producer = cluster.init_producer_id(transactional_id)
    for commit in (True, False):
        write(cluster, transactional_id, producer, {partition: [b"kept" if commit else b"dropped"]})
        producer = cluster.end_transaction(transactional_id, producer, commit=commit)
    answers = list(cluster.stream(partition, 0, end, isolation=COMMITTED))
    assert records_of(answers, committed=True) == [(0, b"kept")]
    assert answers[-1].next_offset >= end
    if end > 2:
        assert answers[-1].aborted == ((producer.producer_id, 2),)


@pytest.mark.landing
def test_a_family_decides_about_many_writers_at_once(cluster: Cluster, make_topic: MakeTopic) -> None:
    name, family = make_topic(2), new_id()
    partitions = [TopicPartition(name, index) for index in range(2)]
    members = []
    for number in range(3):
        joined = cluster.family_join(family, 0, timeout_ms=60_000)
        assert not joined.standing.decided
        member = joined.member
        assert member is not None
        write(
            cluster,
            member.transactional_id,
            member.producer,
            {partition: [f"writer {number}".encode()] for partition in partitions},
        )
        members.append(member)
    assert cluster.family_renew(family, 0) == (False, -1)
    # The second slot was the first attempt at the work of the third.
    decided = cluster.family_decide(family, 0, commit=True, winners=[members[0], members[2]])
    assert decided == (False, 0)
    for partition in partitions:
        expect_committed(cluster, partition, [b"writer 0", b"writer 2"])
    # A replay finds it done, whatever it brings.
    assert cluster.family_join(family, 0, timeout_ms=60_000) == ((True, 0), None)
    assert cluster.family_decide(family, 0, commit=True, winners=[members[1]]) == (True, 0)
    (described,) = cluster.families([family])
    assert (described.name, described.last_batch_id, described.open_slots) == (family, 0, 0)


def test_a_winner_that_is_no_more_is_refused_and_nothing_is_decided(cluster: Cluster, topic: str) -> None:
    partition, family = TopicPartition(topic, 0), new_id()
    member = cluster.family_join(family, 5, timeout_ms=60_000).member
    assert member is not None
    write(cluster, member.transactional_id, member.producer, {partition: [b"value"]})
    with pytest.raises(RequestRefused, match=f"family {family}, batch 5") as refused:
        cluster.family_decide(family, 5, commit=True, winners=[member._replace(producer_epoch=99)])
    assert refused.value.code == ErrorCode.PRODUCER_FENCED
    assert cluster.family_decide(family, 5, commit=False).last_batch_id == -1
    assert committed_values(cluster, partition) == []


def test_a_position_in_a_topic_that_is_not_there_is_told_at_once(cluster: Cluster) -> None:
    transactional_id = new_id()
    producer = cluster.init_producer_id(transactional_id)
    with pytest.raises(UnknownTopic, match="no-such-topic-0"):
        cluster.commit_in_transaction(transactional_id, producer, "group", {TopicPartition("no-such-topic", 0): 1})

"""All replicas may have lost records with their power: who of them leads, and for how long others are waited for."""

import pytest

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.cluster.metadata.partitions import PartitionImage
from cordwood.cluster.metadata.rows import (
    BrokerRow,
    LogEnd,
    PartitionRow,
    damaged_name,
    decode_broker,
    decode_partition,
)
from cordwood.cluster.planner.failover import plan_topic
from cordwood.cluster.planner.survivors import ANSWERS_WITHIN_MS, STARTS_WITHIN_MS
from cordwood.model.identifiers import TopicId
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.topic_settings import resolve

ID = TopicId(int=1)
EPOCH = 5
STAYED = 3
NOTED = PartitionImage(-1, EPOCH, 0, (3, 1, 2), (STAYED,), 7, lossy_epoch=EPOCH)


class Replicas:
    """Registered replicas of a partition, of which broker 3 stayed in sync."""

    def __init__(self, **ends: tuple[int, ...] | None) -> None:
        """`ends`: of `b1` to `b3`, the last epoch, the end and the start (0) that each told; None: it told nothing."""
        self.image = ClusterImage(1, BrokerSettings.from_texts({}))
        for name, end in ends.items():
            broker = int(name[1:])
            told = () if end is None else (LogEnd(damaged_name(ID, 0), EPOCH, *end, *(0,) * (3 - len(end))),)
            self.image.brokers[broker] = BrokerRow(2, "", (), None, storage_id="same", log_ends=told)
            self.image.storage_ids[broker] = "same"
            self.image.broker_epochs[broker] = 2

    def change(self, broker: int, **changes: object) -> "Replicas":
        self.image.brokers[broker] = self.image.brokers[broker]._replace(**changes)  # type: ignore[arg-type]
        return self

    def elected(self, asked_for_ms: int = 0) -> PartitionRow | None:
        topic = TopicImage("t", ID, (NOTED,), {}, resolve({"ack.durability": "os"}))
        steps = plan_topic(self.image, topic, asked_for_ms={0: asked_for_ms})
        assert steps.asked == (() if steps.writes else (0,))
        return decode_partition(steps.writes[0].put.value) if steps.writes else None

    def leader(self, asked_for_ms: int = 0) -> int | None:
        row = self.elected(asked_for_ms)
        return None if row is None else row.leader


@pytest.mark.parametrize(
    ("ends", "leader"),
    [
        ({"b1": (4, 10), "b2": (4, 12), "b3": (4, 11)}, 2),
        ({"b1": (4, 10), "b2": (3, 12), "b3": (3, 12)}, 1),
        ({"b1": (4, 10), "b2": (4, 10), "b3": (4, 10)}, STAYED),
        ({"b1": (-1, 0), "b2": (-1, 0), "b3": (-1, 0)}, STAYED),
        ({"b1": (-1, 10, 10), "b2": (3, 4), "b3": (3, 4)}, 1),
        ({"b1": (-1, 10, 10), "b2": (3, 12), "b3": (4, 9)}, 2),
        ({"b3": None}, STAYED),
    ],
)
def test_the_longest_log_of_the_latest_epoch_leads(ends: dict[str, tuple[int, int] | None], leader: int) -> None:
    row = Replicas(**ends).elected()
    assert row is not None
    assert (row.leader, row.isr, row.elr) == (leader, (leader,), ())
    assert (row.leader_epoch, row.lossy_epoch) == (EPOCH + 1, EPOCH)


def test_a_replica_that_is_away_is_not_waited_for() -> None:
    assert Replicas(b2=(4, 12), b3=(4, 11)).leader() == 2


def test_the_longest_known_log_leads_when_others_have_been_waited_for() -> None:
    replicas = Replicas(b1=None, b2=(4, 12), b3=(4, 11))
    assert (replicas.leader(), replicas.leader(ANSWERS_WITHIN_MS)) == (None, 2)


def test_a_broker_whose_end_is_not_known_is_not_passed_over_by_others() -> None:
    replicas = Replicas(b1=(4, 10), b2=(4, 12), b3=None)
    assert (replicas.leader(), replicas.leader(ANSWERS_WITHIN_MS)) == (None, STAYED)


def test_a_broker_that_checks_its_logs_is_waited_for_longer() -> None:
    replicas = Replicas(b1=None, b2=(4, 12), b3=(4, 11)).change(1, starting=True, fenced=True)
    assert (replicas.leader(ANSWERS_WITHIN_MS), replicas.leader(STARTS_WITHIN_MS)) == (None, 2)


@pytest.mark.parametrize("state", ["fenced", "draining"])
def test_the_longest_log_is_waited_for_until_its_broker_can_lead(state: str) -> None:
    replicas = Replicas(b1=(4, 10), b2=(4, 12), b3=(4, 11)).change(2, **{state: True})
    assert (replicas.leader(), replicas.leader(ANSWERS_WITHIN_MS)) == (None, STAYED)


def test_an_end_that_was_told_in_another_epoch_does_not_count() -> None:
    earlier = (LogEnd(damaged_name(ID, 0), EPOCH - 1, 4, 12, 0),)
    assert Replicas(b2=None, b3=(4, 11)).change(2, log_ends=earlier).leader() is None


def test_ends_are_found_among_many() -> None:
    ends = tuple(sorted(LogEnd(damaged_name(ID, index), EPOCH, 4, index, 0) for index in range(100)))
    broker = BrokerRow(2, "", (), None, log_ends=ends)
    assert [broker.log_end(ID, index, EPOCH) for index in range(100)] == [
        next(end for end in ends if end.end == index) for index in range(100)
    ]
    assert broker.log_end(ID, 100, EPOCH) is None


def test_a_row_of_a_release_that_tells_no_ends_is_read() -> None:
    assert decode_broker("brokers/1", b'{"endpoints":[],"epoch":1,"incarnation":"x"}').log_ends == ()

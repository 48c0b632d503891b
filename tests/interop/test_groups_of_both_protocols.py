"""Groups that move from one protocol to the other member by member (KIP-848), while real clients read."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.deadline import WITHIN_S, eventually
from tests.interop.group_workers import CONSUMER, PARTITIONS, SETTINGS, AnyWorker, Worker, is_shared
from tests.interop.python_members import AiokafkaWorker, KafkaPythonWorker

STRATEGIES = ["range", "cooperative-sticky"]
KINDS = [ConsumerGroupType.CLASSIC, ConsumerGroupType.CONSUMER]
CLASSIC = {"heartbeat.interval.ms": 100}
GROUP = "readers"
TOPIC = "orders"
ABSENT_FOR_LONG = {"group.consumer.session.timeout.ms": "60000"}
"""On a slow machine a static member is away for seconds between two lives, and must keep its partitions."""

pytestmark = pytest.mark.timeout(600)


class CommittingWorker(Worker):
    """A worker that waits for each commit before it does anything else.

    In the background librdkafka repeats commits that failed when the broker died, and may have committed later
    positions by then.
    """

    def poll(self) -> "CommittingWorker":
        for _ in range(max(len(self.owned), 1)):
            super().poll()
        with suppress(KafkaException):  # there may be nothing to commit, or a round that has to be joined first
            self.consumer.commit(asynchronous=False)
        return self


class BusyGroup:
    """A group that reads while records come; the test watches its committed positions."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        self.members: list[AnyWorker] = []
        self._gone: list[AnyWorker] = []
        self._at_once = ThreadPoolExecutor(PARTITIONS)
        self._sent = 0
        self._positions = [0] * PARTITIONS
        self._producer = Producer({"bootstrap.servers": process.bootstrap, "enable.idempotence": True})
        self._watcher = Consumer({"bootstrap.servers": process.bootstrap, "group.id": GROUP})
        # Otherwise librdkafka 2.16 asks a coordinator that it has given up, for ever, once the broker was away.
        patient = {"metadata.recovery.strategy": "none"}
        self._administrator = AdminClient({"bootstrap.servers": process.bootstrap, **patient})
        self._administrator.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result()

    def comes(self, **settings: object) -> Worker:
        """A member on confluent-kafka."""
        worker = CommittingWorker(self.process.bootstrap, GROUP, TOPIC, **settings)
        self.members.append(worker)
        return worker

    def comes_on(self, client: type[KafkaPythonWorker | AiokafkaWorker]) -> AnyWorker:
        worker = client(self.process.bootstrap, GROUP, TOPIC)
        self.members.append(worker)
        return worker

    def goes(self, member: AnyWorker) -> None:
        self.members.remove(member)
        self._gone.append(member)
        member.close()

    def go_on(self) -> bool:
        """Produces one more record in each partition, and polls all members. Returns True if all partitions are owned,
        each by one."""
        for partition in range(PARTITIONS):
            self._producer.produce(TOPIC, f"v{self._sent}", partition=partition)
            self._sent += 1
        self._producer.poll(0)
        return self._poll()

    def _poll(self) -> bool:
        list(self._at_once.map(lambda member: member.poll(), self.members))
        before, self._positions = self._positions, self._committed()
        assert all(map(int.__le__, before, self._positions)), f"back from {before} to {self._positions}"
        return is_shared(self.members)

    def _committed(self) -> list[int]:
        asked = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return [max(each.offset, 0) for each in self._watcher.committed(asked, timeout=WITHIN_S)]

    def settles(self, kind: ConsumerGroupType) -> None:
        """Waits until all members share the partitions, and operators see them in a group of this protocol."""
        eventually(self.go_on, what=f"{len(self.members)} members share")

        def is_seen() -> bool:
            described = self._administrator.describe_consumer_groups([GROUP])[GROUP].result()
            found = described.type, described.state, len(described.members)
            return self.go_on() and found == (kind, ConsumerGroupState.STABLE, len(self.members))

        eventually(is_seen, what=f"{len(self.members)} members are seen in a group of {kind}")
        assert [each for each in KINDS if self.is_listed_as(each)] == [kind]

    def is_listed_as(self, kind: ConsumerGroupType) -> bool:
        listed = self._administrator.list_consumer_groups(types={kind}).result().valid
        return GROUP in [listing.group_id for listing in listed]

    def reads_everything(self) -> None:
        assert self._producer.flush(WITHIN_S) == 0
        sent = {f"v{number}".encode() for number in range(self._sent)}

        def is_done() -> bool:
            return self._poll() and sum(self._positions) == self._sent

        eventually(is_done, what="everything is committed")
        assert {value for each in (*self.members, *self._gone) for value in each.values} == sent

    def end(self) -> None:
        for member in self.members:
            member.close()
        self._watcher.close()
        self._at_once.shutdown()


@pytest.fixture
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BusyGroup]:
    settings = {**SETTINGS, **getattr(request, "param", {})}
    with BrokerProcess(tmp_path / "data", settings=settings, keep_port=True) as process:
        group = BusyGroup(process)
        yield group
        group.end()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_group_moves_member_by_member_and_back(group: BusyGroup, strategy: str) -> None:
    classic = {**CLASSIC, "partition.assignment.strategy": strategy}
    before = [group.comes(**classic) for _ in range(2)]
    group.settles(ConsumerGroupType.CLASSIC)
    for old in before:
        group.comes(**CONSUMER)
        group.settles(ConsumerGroupType.CONSUMER)
        group.goes(old)
        group.settles(ConsumerGroupType.CONSUMER)
    # On the way back, one member leaves before the next comes.
    first, second = group.members
    group.goes(first)
    group.comes(**classic)
    group.settles(ConsumerGroupType.CONSUMER)
    group.goes(second)
    group.settles(ConsumerGroupType.CLASSIC)
    group.comes(**classic)
    group.settles(ConsumerGroupType.CLASSIC)
    group.reads_everything()


@pytest.mark.parametrize("group", [ABSENT_FOR_LONG], indirect=True, ids=[""])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_static_members_move_in_place_and_keep_their_partitions(group: BusyGroup, strategy: str) -> None:
    classic = {**CLASSIC, "partition.assignment.strategy": strategy}
    for name in ("one", "two"):
        group.comes(**classic, **{"group.instance.id": name})
    group.settles(ConsumerGroupType.CLASSIC)
    owned = [set(member.owned) for member in group.members]
    for settings, kinds in (
        (CONSUMER, [ConsumerGroupType.CONSUMER, ConsumerGroupType.CONSUMER]),
        (classic, [ConsumerGroupType.CONSUMER, ConsumerGroupType.CLASSIC]),
    ):
        for name, kind in zip(("one", "two"), kinds, strict=True):
            group.goes(group.members[0])
            group.comes(**settings, **{"group.instance.id": name})
            group.settles(kind)
            owned.reverse()  # the newest member is the last
            assert [member.owned for member in group.members] == owned
    group.reads_everything()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_go_on_when_the_broker_is_killed_on_the_way(group: BusyGroup, strategy: str) -> None:
    classic = {**CLASSIC, "partition.assignment.strategy": strategy}
    for _ in range(2):
        group.comes(**classic)
    group.settles(ConsumerGroupType.CLASSIC)
    comes = group.comes(**CONSUMER)
    eventually(lambda: group.is_listed_as(ConsumerGroupType.CONSUMER), what="it is of both")
    group.process.kill()
    group.process.start()
    group.settles(ConsumerGroupType.CONSUMER)
    group.process.kill()
    group.process.start()
    group.settles(ConsumerGroupType.CONSUMER)
    group.goes(comes)
    group.process.kill()
    group.process.start()
    group.settles(ConsumerGroupType.CLASSIC)
    group.reads_everything()


@pytest.mark.parametrize("client", [KafkaPythonWorker, AiokafkaWorker])
def test_members_on_clients_without_the_new_protocol(
    group: BusyGroup, client: type[KafkaPythonWorker | AiokafkaWorker]
) -> None:
    first = group.comes_on(client)
    group.comes_on(client)
    group.settles(ConsumerGroupType.CLASSIC)
    new = group.comes(**CONSUMER)
    group.settles(ConsumerGroupType.CONSUMER)
    group.goes(first)
    group.settles(ConsumerGroupType.CONSUMER)
    group.comes_on(client)
    group.settles(ConsumerGroupType.CONSUMER)
    group.goes(new)
    group.settles(ConsumerGroupType.CLASSIC)
    group.reads_everything()


def test_members_on_all_clients_share(group: BusyGroup) -> None:
    new = group.comes(**CONSUMER)
    group.settles(ConsumerGroupType.CONSUMER)
    group.comes(**CLASSIC)
    group.comes_on(KafkaPythonWorker)
    group.comes_on(AiokafkaWorker)
    group.settles(ConsumerGroupType.CONSUMER)
    group.goes(new)
    group.settles(ConsumerGroupType.CLASSIC)
    group.reads_everything()

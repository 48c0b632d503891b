"""Applications on confluent-kafka live through the restart of every broker, with the client's default settings."""

from pathlib import Path

import pytest
from tests.cluster.confluent_load import Application, Reader, TransactionalWriter, Writer, at_work, lost
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.rolling import rolling_restart
from tests.cluster.test_leader_killed import create
from tests.deadline import eventually
from tests.etcd.finding import Etcd
from tests.interop.confluent_clients import read_to_end

pytestmark = pytest.mark.timeout(600)
PROTOCOLS = ("classic", "consumer")


class Shop:
    """Writers and readers of one cluster, with one topic for each writer."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        plain, idempotent, transactional = topics
        self.plain = Writer("plain", bootstrap, plain)
        self.exact: list[Writer] = [
            Writer("idempotent", bootstrap, idempotent, **{"enable.idempotence": True}),
            TransactionalWriter("transactional", bootstrap, transactional),
        ]
        self.writers = [self.plain, *self.exact]
        self.groups = {
            protocol: [Reader(f"{protocol}-{number}", bootstrap, topics, protocol, protocol) for number in range(2)]
            for protocol in PROTOCOLS
        }
        self.readers = [reader for group in self.groups.values() for reader in group]

    def play(self, cluster: LocalCluster, *, kill: bool = False) -> None:
        """Restarts all brokers under load; every record that was acknowledged is read, by each of the groups."""
        with at_work(self.readers):
            with at_work(self.writers):
                eventually(lambda: all(reader.values for reader in self.readers), what="a record for each reader")
                print(*rolling_restart(cluster, kill=kill), sep="\n")
            for group in self.groups.values():
                for writer in self.writers:
                    eventually(
                        lambda group=group, writer=writer: not lost(writer.acknowledged, read_by(group)),  # type: ignore[misc]
                        what=f"all records of {writer.name}, by {group[0].name}",
                    )
        for writer in self.writers:
            print(f"{writer.name}: {len(writer.acknowledged)} of {writer.sent}, slowest {writer.longest_wait_s:.2f} s")

    @property
    def errors(self) -> list[str]:
        applications: list[Application] = [*self.writers, *self.readers]
        return [error for each in applications for error in each.errors]

    def check_exactly_once(self, cluster: LocalCluster, partitions: int) -> None:
        """No record of an idempotent or transactional producer is in the log twice."""
        for writer in self.exact:
            found = read_to_end(
                cluster.bootstrap, writer.topic, range(partitions), config={"isolation.level": "read_committed"}
            )
            assert sorted((message.value() or b"").decode() for message in found) == sorted(writer.acknowledged)


def read_by(group: list[Reader]) -> list[str]:
    return [value for reader in group for value in list(reader.values)]


def test_no_error_reaches_an_application_while_every_broker_is_restarted(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        shop = Shop(cluster.bootstrap, [create(cluster, 3, 3) for _ in range(3)])
        shop.play(cluster)
        assert shop.errors == []
        assert all(len(writer.acknowledged) == writer.sent for writer in shop.writers)
        shop.check_exactly_once(cluster, 3)


def test_no_error_reaches_an_application_while_every_broker_is_restarted_with_metadata_in_etcd(
    tmp_path: Path, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(etcd.path).parent), prepend=":")
    with LocalCluster(tmp_path / "data", "--metadata", "etcd") as cluster:
        shop = Shop(cluster.bootstrap, [create(cluster, 6, 3) for _ in range(3)])
        shop.play(cluster)
        assert shop.errors == []
        assert all(len(writer.acknowledged) == writer.sent for writer in shop.writers)
        shop.check_exactly_once(cluster, 6)


def test_nothing_acknowledged_is_lost_or_doubled_while_every_broker_is_killed_in_turn(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        shop = Shop(cluster.bootstrap, [create(cluster, 6, 3) for _ in range(3)])
        shop.play(cluster, kill=True)
        print(*shop.errors, sep="\n")
        # A commit that was under way when its coordinator was killed may fail: the application commits again.
        assert [error for error in shop.errors if ": commit: " not in error] == []
        shop.check_exactly_once(cluster, 6)

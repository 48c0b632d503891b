"""Finalising a metadata version while nodes die, start and hang: it is final or it is not, and all nodes agree.

A node with `metadata.version.max` is one of the release before.
"""

import random
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.broker_process import BrokerProcess
from tests.cluster.local_cluster import CORDWOOD, clean_environment
from tests.cluster.test_import import cordwood, told, where
from tests.cluster.test_workers import LocalWorkers, all_values, create, produce, refused
from tests.deadline import eventually
from tests.etcd.fixtures import StartEtcd
from tests.etcd.members import EtcdCluster
from tests.pausing import pause, resume
from tests.seeds import FIRST_SEED

from cordwood.administration.cluster.versions import ClusterVersions, cluster_versions, finalise
from cordwood.administration.connection import Connection
from cordwood.model.failure import Failure

pytestmark = pytest.mark.timeout(300)
ROUNDS = 4
TIMEOUT_S = 30.0
MAX = "metadata.version.max"
OLD = {MAX: "1"}
NO_WAY_BACK = "the cluster's metadata has version 2, and this broker supports only version 1"


class Nodes:
    """Brokers of one cluster, each of one of the two releases."""

    def __init__(self, directory: Path, place: tuple[str, ...], count: int, settings: dict[str, str]) -> None:
        self.nodes = {
            number: BrokerProcess(
                directory / f"node-{number}",
                options=(*place, "--node-id", str(number)),
                settings=dict(settings),
                keep_port=True,
            )
            for number in range(1, count + 1)
        }

    def start(self, *, settings: dict[str, str] | None = None) -> None:
        """Starts all that do not run."""
        stopped = [node for node in self.nodes.values() if not node.alive]
        for node in stopped:
            node.kill()
            node.settings = dict(settings or {})
            node.launch()
        for node in stopped:
            node.wait_ready()

    def end(self) -> None:
        for node in self.nodes.values():
            node.end()

    def stop(self) -> None:
        for node in self.nodes.values():
            assert node.stop() == 0

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    def versions(self) -> ClusterVersions:
        return cluster_versions(Connection(self.bootstrap, TIMEOUT_S))

    def finalise(self) -> None:
        finalise(self.versions(), 2, TIMEOUT_S)

    def refusal(self) -> Failure | None:
        try:
            self.finalise()
        except Failure as failure:
            return failure
        return None

    def check_final(self) -> None:
        """Every node says so; one that registers again is not listed for a moment."""

        def all_say_so() -> bool:
            try:
                return [node.finalised for node in self.versions().nodes] == [2] * len(self.nodes)
            except Failure:
                return False

        eventually(all_say_so, what="version 2")

    def write(self, count: int, topic: str = "orders") -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True})
        errors: list[object] = []
        for number in range(count):
            producer.produce(topic, str(number), on_delivery=lambda error, _: errors.append(error) if error else None)
        assert producer.flush(60) == 0
        assert errors == []


@contextmanager
def upgraded(directory: Path, place: tuple[str, ...], count: int = 3) -> Iterator[Nodes]:
    """Nodes of the new release in a cluster of version 1, with a topic that has a replica on each."""
    directory.mkdir(exist_ok=True)
    nodes = Nodes(directory, place, count, OLD)
    with ExitStack() as ending:
        ending.callback(nodes.end)
        nodes.start(settings=OLD)
        made = cordwood(
            *("topic", "create", "orders", "--partitions", "3", "--replication-factor", str(count)),
            bootstrap=nodes.bootstrap,
        )
        assert made.returncode == 0, made.stderr
        nodes.write(30)
        nodes.stop()
        nodes.start()
        assert [node.supports for node in nodes.versions().nodes] == [(1, 2)] * count
        assert nodes.versions().finalised == 1
        yield nodes


def test_a_node_dies_while_it_finalises(tmp_path: Path, shared_etcd: EtcdCluster) -> None:
    chance = random.Random(FIRST_SEED)
    told_final = 0
    for number in range(ROUNDS):
        with upgraded(tmp_path / str(number), where(shared_etcd, f"dies-{number}"), 2) as nodes:
            asked = nodes.versions()
            ended: list[Failure | None] = []

            def ask(asked: ClusterVersions = asked, ended: list[Failure | None] = ended) -> None:
                try:
                    finalise(asked, 2, TIMEOUT_S)
                    ended.append(None)
                except Failure as failure:
                    ended.append(failure)

            asking = threading.Thread(target=ask)
            victims = [nodes.nodes[1]] if number % 2 else list(nodes.nodes.values())
            asking.start()
            threading.Event().wait(chance.uniform(0, 0.03))
            for victim in victims:
                victim.kill()
            asking.join()
            nodes.start()
            if ended == [None]:
                told_final += 1
                nodes.check_final()
            nodes.finalise()
            nodes.check_final()
            nodes.write(30)
    print(f"told that it is final in {told_final} of {ROUNDS} rounds")


def test_several_ask_at_once(tmp_path: Path, shared_etcd: EtcdCluster) -> None:
    with upgraded(tmp_path, where(shared_etcd, "at-once")) as nodes:
        command = [*CORDWOOD, "cluster", "upgrade", "--yes", "--json", "--bootstrap-server"]
        asking = [
            subprocess.Popen(
                [*command, node.address],
                env=clean_environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for node in nodes.nodes.values()
        ]
        for process in asking:
            _, said = process.communicate(timeout=120)
            assert process.returncode == 0, said
        nodes.check_final()
        nodes.write(30)


def test_a_node_of_the_older_release_starts_meanwhile(tmp_path: Path, shared_etcd: EtcdCluster) -> None:
    """The fourth has no replicas. It is counted, and nothing is final, or it is refused, and ends with words."""
    chance = random.Random(FIRST_SEED)
    place = where(shared_etcd, "meanwhile")
    refusals = 0
    with upgraded(tmp_path, place) as nodes:
        fourth = BrokerProcess(tmp_path / "node-4", options=(*place, "--node-id", "4"), settings=OLD, keep_port=True)
        try:
            for _ in range(ROUNDS):
                fourth.launch()
                threading.Event().wait(chance.uniform(0.3, 1.0))
                if (refusal := nodes.refusal()) is not None:
                    refusals += 1
                    assert "broker 4 (only version 1)" in refusal.message
                    assert nodes.versions().finalised == 1
                    fourth.wait_ready()
                    assert fourth.stop() == 0
                    continue
                eventually(lambda: not fourth.alive, what="the end of the older release")
                fourth.says(NO_WAY_BACK)
                break
            else:
                nodes.finalise()
            nodes.check_final()
            nodes.write(30)
            fourth.kill()
            fourth.launch()
            eventually(lambda: not fourth.alive, what="the end of the older release")
            fourth.says(NO_WAY_BACK)
        finally:
            fourth.kill()
    print(f"refused {refusals} times")


def test_etcd_hangs_while_a_version_is_finalised(tmp_path: Path, start_etcd: StartEtcd) -> None:
    with start_etcd() as etcd, upgraded(tmp_path, where(etcd, "hangs")) as nodes:
        asked = nodes.versions()
        pid = etcd.members[0].pid
        pause(pid)
        try:
            with pytest.raises(Failure) as failed:
                finalise(asked, 2, 60)
        finally:
            resume(pid)
        assert "nothing was changed" not in failed.value.hint, "who knows?"
        nodes.start()
        eventually(lambda: nodes.refusal() is None, what="all nodes, and their version")
        nodes.check_final()
        nodes.write(30)


def test_etcd_is_restored_from_before_a_version_was_final(tmp_path: Path, start_etcd: StartEtcd) -> None:
    with start_etcd() as etcd, upgraded(tmp_path, where(etcd, "restored")) as nodes:
        member = etcd.members[0]
        nodes.stop()
        member.kill()
        shutil.copytree(member.data, tmp_path / "backup")
        etcd.launch(member)
        member.wait_healthy()
        nodes.start()
        nodes.finalise()
        nodes.check_final()
        nodes.write(30)
        nodes.stop()
        member.kill()
        shutil.rmtree(member.data)
        shutil.copytree(tmp_path / "backup", member.data)
        etcd.launch(member)
        member.wait_healthy()
        for settings in ({}, OLD):
            first = nodes.nodes[1]
            first.kill()
            first.settings = dict(settings)
            first.launch()
            eventually(lambda first=first: not first.alive, what="the refusal")  # type: ignore[misc]
            first.says("went back")
        for node in nodes.nodes.values():
            (node.data_dir / "cluster-witness").unlink()
        nodes.start()
        assert nodes.versions().finalised == 1
        nodes.write(30)
        nodes.finalise()
        nodes.check_final()
        nodes.write(30)


def test_workers_are_upgraded_and_their_number_changes_before_and_after(tmp_path: Path) -> None:
    old = ("--set", f"{MAX}=1")
    numbers = [str(number) for number in range(60)]
    with LocalWorkers(tmp_path, 2, *old) as workers:
        create(workers.bootstrap, "orders")
        produce(workers.bootstrap, "orders", numbers)
        assert workers.stop() == 0
    with LocalWorkers(tmp_path, 3) as workers:
        assert told("cluster", "upgrade", "--dry-run", bootstrap=workers.bootstrap)["before"] == 1
        assert workers.stop() == 0
    with LocalWorkers(tmp_path, 2, *old) as workers:
        assert sorted(map(int, all_values(workers.bootstrap, "orders", 60))) == list(range(60))
        assert workers.stop() == 0
    with LocalWorkers(tmp_path, 3) as workers:
        assert told("cluster", "upgrade", "--yes", bootstrap=workers.bootstrap)["finalised"]
        workers.kill(2)
        eventually(lambda: "serves again" in workers.said, what="the second life of worker 2")
        produce(workers.bootstrap, "orders", numbers)
        assert workers.stop() == 0
    before = sorted((path, path.read_bytes()) for path in tmp_path.rglob("*.log"))
    for number in ("2", "3"):
        assert NO_WAY_BACK in refused(tmp_path, "--workers", number, *old)
    assert NO_WAY_BACK in refused(tmp_path, *old)
    assert sorted((path, path.read_bytes()) for path in tmp_path.rglob("*.log")) == before
    with LocalWorkers(tmp_path, 2) as workers:
        assert told("cluster", "upgrade", bootstrap=workers.bootstrap)["before"] == 2
        assert len(all_values(workers.bootstrap, "orders", 120)) == 120
    with BrokerProcess(tmp_path) as broker:
        assert len(all_values(broker.bootstrap, "orders", 120)) == 120


def test_an_imported_directory_keeps_its_version(tmp_path: Path, shared_etcd: EtcdCluster) -> None:
    place = where(shared_etcd, "imported-version")
    with BrokerProcess(tmp_path / "node-1", settings=OLD) as alone:
        create(alone.bootstrap, "orders")
        produce(alone.bootstrap, "orders", [str(number) for number in range(60)])
        assert alone.stop() == 0
    told("cluster", "import", str(tmp_path / "node-1"), *place, "--yes")
    nodes = Nodes(tmp_path, place, 2, {})
    try:
        nodes.nodes[2].settings = dict(OLD)
        for node in nodes.nodes.values():
            node.start()
        assert nodes.versions().finalised == 1
        with pytest.raises(Failure, match="broker 2 \\(only version 1\\)"):
            nodes.finalise()
        assert nodes.nodes[2].stop() == 0
        nodes.start()
        nodes.finalise()
        nodes.check_final()
        assert sorted(map(int, all_values(nodes.bootstrap, "orders", 60))) == list(range(60))
        nodes.write(30)
    finally:
        nodes.end()

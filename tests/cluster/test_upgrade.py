"""A cluster goes from one version to the next and back with clients at work, and the history checker finds nothing.

Two versions run side by side: brokers of the older one are this release with `metadata.version.max`, or a real older
commit of this repository.
"""

import io
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
from tests.cluster.faults.clients import Clients
from tests.cluster.local_cluster import LocalCluster, is_alive
from tests.cluster.rolling import in_sync, rolling_restart
from tests.cluster.test_leader_killed import create
from tests.deadline import eventually
from tests.etcd.finding import Etcd
from tests.seeds import FIRST_SEED

from cordwood.administration.cluster.versions import ClusterVersions, cluster_versions, finalise
from cordwood.administration.connection import Connection
from cordwood.cluster.metadata.versions import SUPPORTED
from cordwood.model.failure import Failure

pytestmark = pytest.mark.timeout(600)
OLDER_COMMIT = "1c1991fea"
"""The last commit whose brokers know the first metadata version alone."""
REPOSITORY = Path(__file__).parents[2]
ONE_IN_FLIGHT = {"max.in.flight": 1}
"""The older commit takes a batch that follows a refused one of its producer for a gap. librdkafka then begins a new
producer epoch, and writes records twice. Later releases refuse the second batch as well."""
PACE_S = 0.02
TIMEOUT_S = 30.0


class Release(NamedTuple):
    """How brokers of a release are started."""

    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}

    def start(self, cluster: LocalCluster) -> Callable[[int], None]:
        return lambda node_id: cluster.restart(node_id, *self.options, environment=self.environment)


def versions(cluster: LocalCluster) -> ClusterVersions:
    return cluster_versions(Connection(cluster.bootstrap, TIMEOUT_S))


def refusal(cluster: LocalCluster) -> str:
    """Why the newest version cannot be finalised now."""
    with pytest.raises(Failure) as refused:
        finalise(versions(cluster), 2, TIMEOUT_S)
    return refused.value.message


def play(
    cluster: LocalCluster,
    old: Release,
    new: Release,
    history: Path,
    of_producers: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """To the new release, back, and again to the new one; then its version is finalised."""
    clients = Clients(cluster.bootstrap, history, 0, FIRST_SEED or 1, pace_s=PACE_S, of_producers=of_producers)
    try:
        clients.start()
        assert clients.acknowledgements.come_everywhere()
        began_s = time.monotonic()
        rolling_restart(cluster, [1], restart=new.start(cluster))
        assert [node.supports for node in versions(cluster).nodes] == [(1, 2), (1, 1), (1, 1)]
        assert "broker 2 (only version 1), broker 3 (only version 1)" in refusal(cluster)
        rolling_restart(cluster, [2, 3], restart=new.start(cluster))
        for release in (old, new):
            print(*rolling_restart(cluster, restart=release.start(cluster)), sep="\n")
        found = versions(cluster)
        assert [node.supports for node in found.nodes] == [(1, 2)] * 3
        assert found.finalised == 1
        finalise(found, 2, TIMEOUT_S)
        assert versions(cluster).finalised == SUPPORTED.highest
        # Every partition gets rows of the new version: by elections, and by changes of in-sync sets.
        rolling_restart(cluster, restart=new.start(cluster))
        create(cluster, 3, 3)
        assert clients.acknowledgements.come_everywhere()
        report = clients.finish()
        print(f"{time.monotonic() - began_s:.0f} s: {clients.words()}")
        assert report.clean, report.render()
        assert clients.failures == []
    finally:
        clients.abandon()
    check_no_way_back(cluster, old, new)


def check_no_way_back(cluster: LocalCluster, old: Release, new: Release) -> None:
    """The older release refuses to start with words and changes nothing; the new one goes on."""
    log = cluster.directory / "node-3.log"
    cluster.terminate(3)
    said = len(log.read_text())
    old.start(cluster)(3)
    eventually(lambda: not is_alive(cluster.pids[3]), what="the end of the older release")
    assert f"the cluster's metadata has version {SUPPORTED.highest}" in log.read_text()[said:]
    new.start(cluster)(3)
    eventually(lambda: in_sync(cluster), what="all replicas in sync")


def test_two_versions_side_by_side(tmp_path: Path) -> None:
    old, new = (Release(("--set", f"metadata.version.max={version}")) for version in (1, 0))
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor", *old.options) as cluster:
        play(cluster, old, new, tmp_path / "history.jsonl")


def test_an_older_commit_and_this_one_side_by_side(tmp_path: Path, etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(etcd.path).parent), prepend=":")
    old = Release(environment={"PYTHONPATH": str(older_commit(tmp_path))})
    with LocalCluster(tmp_path / "data", "--metadata", "etcd", environment=old.environment) as cluster:
        assert [node.updates_features for node in versions(cluster).nodes] == [False] * 3, "the older release runs"
        assert "all run a release that knows version 1 alone" in refusal(cluster)
        play(cluster, old, Release(), tmp_path / "history.jsonl", ONE_IN_FLIGHT)


def older_commit(directory: Path) -> Path:
    """A path for Python to import the older release from."""
    archived = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", OLDER_COMMIT, "src"], capture_output=True, check=False
    )
    if archived.returncode:
        pytest.skip(f"the repository has no commit {OLDER_COMMIT}: {archived.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(directory / "older", filter="data")
    source = directory / "older" / "src"
    imported = subprocess.run(
        [sys.executable, "-c", "import cordwood; print(cordwood.__file__)"],
        env={"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert imported.stdout.startswith(str(source)), "Python imports another release"
    return source

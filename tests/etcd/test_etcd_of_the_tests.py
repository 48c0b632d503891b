"""The etcd that other tests rely on: it is found, its members start, and none of them outlives its test."""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pytest
from tests.etcd import finding
from tests.etcd.finding import Etcd, NoEtcd
from tests.etcd.members import EtcdCluster


class StartEtcd(Protocol):
    def __call__(self, members: int = ...) -> AbstractContextManager[EtcdCluster]: ...


@pytest.fixture
def empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with an empty cache and a PATH without programs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(finding.BUILD_VARIABLE, raising=False)
    monkeypatch.delenv(finding.REQUIRE_VARIABLE, raising=False)
    return tmp_path


def test_where_there_is_no_etcd_the_reason_names_the_command_that_helps(empty_machine: Path) -> None:
    with pytest.raises(NoEtcd, match=r"PATH has none; no apt-get .*CORDWOOD_BUILD_ETCD=1 \S+ -m tests.etcd.finding"):
        finding.find_etcd.__wrapped__()


def test_an_etcd_on_the_path_that_is_too_old_is_not_used(empty_machine: Path) -> None:
    program = empty_machine / "etcd"
    program.write_text("#!/bin/sh\necho 'etcd Version: 3.5.27'\n")
    program.chmod(0o755)
    with pytest.raises(NoEtcd, match=r"is etcd 3\.5\.27, which is too old"):
        finding.find_etcd.__wrapped__()
    program.write_text("#!/bin/sh\necho 'etcd Version: 3.5.28'\n")
    assert finding.find_etcd.__wrapped__() == Etcd(str(program), "3.5.28", "on the PATH")


def test_three_members_start_and_are_gone_at_the_end(start_etcd: StartEtcd) -> None:
    with start_etcd(3) as cluster:
        assert len(set(cluster.endpoints)) == 3
        pids = [member.pid for member in cluster.members]
        cluster.members[0].kill()
        cluster.restart(cluster.members[0])
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

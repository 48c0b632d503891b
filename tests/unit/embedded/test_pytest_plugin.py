"""The plugin that every pytest run on the machine loads: light, and a fresh broker for each test that asks."""

import subprocess
import sys
from pathlib import Path

HEAVY = (
    "uvloop",
    "sqlite3",
    "cordwood.broker",
    "cordwood.node",
    "cordwood.log",
    "cordwood.embedded.broker",
    "cordwood.pipelines",
    "pyspark",
)


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    code = "import sys, cordwood.embedded.pytest_plugin; print(*[name for name in sys.argv[1:] if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_fixture_gives_each_test_a_broker_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(
        """
import pytest
from confluent_kafka import Producer

seen = []

@pytest.mark.parametrize("round", [1, 2])
def test_orders(cordwood, round):
    producer = Producer({"bootstrap.servers": cordwood.bootstrap_servers})
    producer.produce("orders", b"value")
    assert producer.flush(60) == 0
    assert [(record.offset, record.value) for record in cordwood.log.read("orders", 0)] == [(0, b"value")]
    assert cordwood.bootstrap_servers not in seen
    seen.append(cordwood.bootstrap_servers)

def test_that_needs_no_broker():
    pass
"""
    )
    assert "3 passed" in suite(tmp_path)


def test_settings_come_from_the_ini_file_a_fixture_and_markers(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(
        """
[pytest]
addopts = --strict-markers
cordwood_settings =
    num.partitions = 2
    log.retention.ms=3600000
"""
    )
    (tmp_path / "test_from_the_ini_file.py").write_text(
        """
import pytest

def partitions(broker):
    broker.log.append("orders", None, "x")
    return broker.log.topics()["orders"]

def test_the_file_holds(cordwood):
    assert partitions(cordwood) == 2

@pytest.mark.cordwood({"num.partitions": 4})
class TestMarked:
    def test_a_class_holds(self, cordwood):
        assert partitions(cordwood) == 4

    @pytest.mark.cordwood({"num.partitions": 5})
    def test_the_nearest_marker_holds(self, cordwood):
        assert partitions(cordwood) == 5
"""
    )
    (tmp_path / "test_from_a_fixture.py").write_text(
        """
import pytest

@pytest.fixture
def cordwood_settings(cordwood_settings):
    return cordwood_settings | {"num.partitions": 3}

def test_the_fixture_holds(cordwood):
    cordwood.log.append("orders", None, "x")
    assert cordwood.log.topics()["orders"] == 3
"""
    )
    assert "4 passed" in suite(tmp_path)


def test_the_nearest_marker_says_whether_a_broker_is_secure_and_markers_add_users(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(
        """
import pytest
from confluent_kafka.admin import AdminClient

pytestmark = pytest.mark.cordwood({"num.partitions": 2}, secure=True, users={"alice": "a"})

def users(broker):
    for user in ("alice", "bob"):
        try:
            AdminClient(broker.client_settings(user)).list_topics(timeout=60)
        except ValueError:
            continue
        yield user

def test_the_module_holds(cordwood):
    assert list(users(cordwood)) == ["alice"]

@pytest.mark.cordwood(users={"bob": "b"})
def test_a_test_adds_users(cordwood):
    assert list(users(cordwood)) == ["alice", "bob"]

@pytest.mark.cordwood(users={"bob": "b"})
def test_a_cluster_is_secure(cordwood_cluster):
    assert list(users(cordwood_cluster)) == ["alice", "bob"]
"""
    )
    assert "3 passed" in suite(tmp_path)


def test_a_marker_that_says_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(
        """
import pytest

@pytest.mark.cordwood(port=9092)
def test_it(cordwood): pass
"""
    )
    assert "the marker cordwood takes settings, secure= and users=, and no port=" in run_suite(tmp_path).stdout


def test_a_line_of_the_ini_file_that_is_no_setting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ncordwood_settings = num.partitions\n")
    (tmp_path / "test_users.py").write_text("def test_it(cordwood): pass\n")
    done = run_suite(tmp_path)
    assert done.returncode != 0
    assert "cordwood_settings: 'num.partitions' is not NAME=VALUE" in done.stdout


def run_suite(directory: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(directory)],
        capture_output=True,
        text=True,
        cwd=directory,
        check=False,
    )


def suite(directory: Path) -> str:
    done = run_suite(directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

"""The plugin that every pytest run on the machine loads: light, and a fresh broker for each test that asks."""

import subprocess
import sys
from pathlib import Path

HEAVY = ("uvloop", "sqlite3", "cordwood.broker", "cordwood.node", "cordwood.log", "cordwood.embedded.broker")


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
    assert producer.flush(10) == 0
    assert [(record.offset, record.value) for record in cordwood.log.read("orders", 0)] == [(0, b"value")]
    assert cordwood.bootstrap_servers not in seen
    seen.append(cordwood.bootstrap_servers)

def test_that_needs_no_broker():
    pass
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout

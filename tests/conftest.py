"""What the tests on real processes share: a broker per session, topics, and the clients' addresses.

CORDWOOD_TEST_BOOTSTRAP=host:port in the environment runs the tests that need only an address against that broker
instead: Apache Kafka, say, to see whether a test is right.
"""

import gc
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import HealthCheck, settings
from tests.broker_process import BrokerProcess
from tests.deadline import eventually
from tests.etcd.fixtures import (
    _one_member,
    certificate,
    etcd,
    etcdutl,
    one_etcd,
    pytest_terminal_summary,
    shared_etcd,
    start_etcd,
)
from tests.order import dealt
from tests.seeds import SOAKING
from tests.suites import suites_of

__all__ = [
    "_one_member",
    "certificate",
    "etcd",
    "etcdutl",
    "one_etcd",
    "pytest_terminal_summary",
    "shared_etcd",
    "start_etcd",
]

# No JVM of a test runs long enough for what the second compiler does to be of use.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# No clock decides a test: a busy machine takes a second for an example of a millisecond.
settings.register_profile("landing", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("soak" if SOAKING else "landing")

EXTERNAL_BOOTSTRAP = os.environ.get("CORDWOOD_TEST_BOOTSTRAP", "")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        for suite in suites_of(item.path, {mark.name for mark in item.iter_markers()}):
            item.add_marker(suite)
    yield  # pytest drops the tests of other suites
    if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        on_spark = ["spark" in getattr(item, "fixturenames", ()) for item in items]
        items[:] = [items[index] for index in dealt([item.path for item in items], on_spark, workers)]


def pytest_collection_finish() -> None:
    """Spares the garbage collection what lives until the end, which is the modules and ten thousand tests.

    Without it each look at all objects takes most of a second, and tests that look for objects find those of others.
    """
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class RunningBroker:
    """A broker to test against. `process` is None where it is somebody else's."""

    bootstrap: str
    process: BrokerProcess | None

    @property
    def host(self) -> str:
        return self.bootstrap.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for the whole session (for each worker of xdist)."""
    if EXTERNAL_BOOTSTRAP:
        yield RunningBroker(EXTERNAL_BOOTSTRAP, None)
        return
    directory: Path = tmp_path_factory.mktemp("broker")
    # Tests write records of fixed times, long ago: retention must not remove them in a run of more than five minutes.
    settings = {"log.retention.check.interval.ms": "86400000"}
    process = BrokerProcess(directory / "data", settings=settings, output=directory / "output")
    process.start()
    yield RunningBroker(process.bootstrap, process)
    assert process.alive, f"the broker died during the tests:\n{process.output()[-8000:]}"
    assert process.stop() == 0, process.output()[-8000:]


@pytest.fixture(scope="session")
def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def await_topic(admin: AdminClient, name: str, partitions: int) -> None:
    """Waits until the broker's metadata has the topic: on Apache Kafka that is a little after its creation."""

    def is_there() -> bool:
        # All topics, not this one: librdkafka would have the broker create it.
        found = admin.list_topics(timeout=60).topics.get(name)
        return found is not None and found.error is None and len(found.partitions) == partitions

    eventually(is_there, what=f"topic {name}")


MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def make_topic(admin: AdminClient) -> MakeTopic:
    """`make_topic(partitions=3, **{"segment.bytes": "1000"})`: the name of a new topic that is ready for use."""

    def make(partitions: int = 1, **config: str) -> str:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([new], operation_timeout=20)[name].result(timeout=60)
        await_topic(admin, name, partitions)
        return name

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    """A new topic with one partition."""
    return make_topic()

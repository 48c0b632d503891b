"""What the crash tests share: how long they go on, and a broker that comes back on the same port."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.crash.workload import Workload
from tests.seeds import FIRST_SEED

ROUNDS = int(os.environ.get("CORDWOOD_CRASH_ROUNDS", "0"))
"""More rounds of killing and cutting than the few that every test run makes."""

SEED = int(os.environ.get("CORDWOOD_CRASH_SEED", "0")) or FIRST_SEED or 20260101


@pytest.fixture
def chance() -> random.Random:
    """When to kill. The seed is printed where a test fails; the machine's own timing is not in it."""
    print(f"CORDWOOD_CRASH_SEED={SEED}")
    return random.Random(SEED)


StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """`start_broker(data_dir=..., settings=...)`: a running broker whose port survives restarts."""
    started: list[BrokerProcess] = []

    def start(data_dir: Path | None = None, settings: dict[str, str] | None = None) -> BrokerProcess:
        broker = BrokerProcess(
            data_dir or tmp_path / "data", settings=settings, output=tmp_path / "output", keep_port=True
        )
        started.append(broker)
        return broker.start()

    yield start
    for broker in started:
        broker.kill()


MakeLoad = Callable[..., Workload]


@pytest.fixture
def make_load(tmp_path: Path) -> Iterator[MakeLoad]:
    """`make_load(broker, partitions=3)`: clients on the topic `orders`, whose history is judged at the end."""
    loads: list[Workload] = []

    def make(broker: BrokerProcess, partitions: int, value_bytes: int = 100) -> Workload:
        history = tmp_path / f"history-{len(loads)}.jsonl"
        load = Workload(broker.bootstrap, "orders", history, partitions=partitions, value_bytes=value_bytes)
        loads.append(load)
        return load

    yield make
    for load in loads:
        load.abandon()

"""The Java client: what it sends, reads, administers, shares in groups of both protocols, and does in transactions."""

from pathlib import Path

import pytest
from benchmarks.kafka_peer import KafkaJars
from tests.conftest import RunningBroker
from tests.interop.java_cases import run_java_cases


@pytest.mark.timeout(540)  # for the compiler and all the cases
@pytest.mark.parametrize(("cases", "count"), [("InteropCases", 22), ("GroupCases", 12), ("TransactionCases", 9)])
def test_the_java_client(
    broker: RunningBroker, kafka_jars: KafkaJars, javac: str, tmp_path: Path, cases: str, count: int
) -> None:
    run_java_cases(cases, count, broker.bootstrap, kafka_jars, javac, tmp_path)

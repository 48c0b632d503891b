"""Transactions of the Java client: java/TransactionCases.java is compiled, run once, and judged by what it prints."""

import re
import subprocess
from pathlib import Path

import pytest
from benchmarks.kafka_peer import KafkaJars
from tests.conftest import RunningBroker
from tests.interop.conftest import JVM_FLAGS

SOURCE = Path(__file__).parent / "java" / "TransactionCases.java"
CASES = 6


@pytest.mark.timeout(300)  # for the compiler and all the cases
def test_transactions_of_the_java_client(
    broker: RunningBroker, kafka_jars: KafkaJars, javac: str, tmp_path: Path
) -> None:
    compiled = subprocess.run(
        [javac, "-cp", kafka_jars.classpath, "-d", str(tmp_path), str(SOURCE)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr
    command = [kafka_jars.java, *JVM_FLAGS, "-cp", f"{tmp_path}:{kafka_jars.classpath}", "TransactionCases"]
    done = subprocess.run([*command, broker.bootstrap], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = re.findall(r"^(ok|failed) (\w+)(?:: (.*))?$", done.stdout, re.MULTILINE)
    assert [f"{case}: {reason}" for outcome, case, reason in outcomes if outcome == "failed"] == []
    assert len(outcomes) == CASES, done.stdout

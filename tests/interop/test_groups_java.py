"""Groups of Java consumers in both protocols: java/GroupCases.java is compiled, run once, and judged by its output."""

import re
import subprocess
from pathlib import Path

import pytest
from benchmarks.kafka_peer import KafkaJars
from tests.conftest import RunningBroker
from tests.interop.conftest import JVM_FLAGS

SOURCE = Path(__file__).parent / "java" / "GroupCases.java"
CASES = 6


@pytest.mark.timeout(420)  # for the compiler and all the cases
def test_groups_of_java_consumers(broker: RunningBroker, kafka_jars: KafkaJars, javac: str, tmp_path: Path) -> None:
    compiled = subprocess.run(
        [javac, "-cp", kafka_jars.classpath, "-d", str(tmp_path), str(SOURCE)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr
    done = subprocess.run(
        [kafka_jars.java, *JVM_FLAGS, "-cp", f"{tmp_path}:{kafka_jars.classpath}", "GroupCases", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = re.findall(r"^(ok|failed) (\w+)(?:: (.*))?$", done.stdout, re.MULTILINE)
    assert [f"{case}: {reason}" for outcome, case, reason in outcomes if outcome == "failed"] == [], done.stderr
    assert len(outcomes) == CASES, done.stdout

"""Cases written in Java: a source is compiled, run once, and judged by its lines: "ok NAME", "failed NAME: reason"."""

import re
import subprocess
from pathlib import Path

from benchmarks.kafka_peer import KafkaJars
from tests.interop.conftest import JVM_FLAGS

SOURCES = Path(__file__).parent / "java"


def run_java_cases(name: str, count: int, bootstrap: str, jars: KafkaJars, javac: str, workplace: Path) -> None:
    """Runs java/NAME.java against a broker; so many cases have to be there, and none may fail."""
    compiled = subprocess.run(
        [javac, "-cp", jars.classpath, "-d", str(workplace), str(SOURCES / f"{name}.java")],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr
    done = subprocess.run(
        [jars.java, *JVM_FLAGS, "-cp", f"{workplace}:{jars.classpath}", name, bootstrap],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = re.findall(r"^(ok|failed) (\w+)(?:: (.*))?$", done.stdout, re.MULTILINE)
    failures = [f"{case}: {reason}" for outcome, case, reason in outcomes if outcome == "failed"]
    assert not failures, "\n".join([*failures, done.stderr])
    assert len(outcomes) == count, done.stdout

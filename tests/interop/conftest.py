"""Apache Kafka's own jars, for the Java client and Kafka's command line tools; skipped with the reason without them."""

import shutil

import pytest
from benchmarks.kafka_peer import KafkaJars, install_kafka
from benchmarks.maven import PeerUnavailable

JVM_FLAGS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # most of a short run is start-up
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


@pytest.fixture(scope="session")
def kafka_jars() -> KafkaJars:
    try:
        return install_kafka()
    except PeerUnavailable as reason:
        pytest.skip(f"the Java client cannot run here: {reason}")


@pytest.fixture(scope="session")
def javac() -> str:
    found = shutil.which("javac")
    if found is None:
        pytest.skip("no Java compiler (Debian: openjdk-17-jdk-headless)")
    return found

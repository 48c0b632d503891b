"""Spark's own Kafka connector, from Maven Central: the peer of our source and sink.

The newest one that is published whole is taken: where Maven Central has no connector of the very Spark that is
installed, an older one runs on it as it is, which the tests and the benchmarks show.
"""

from pathlib import Path

from benchmarks.maven import PEERS, FetchFailed, PeerUnavailable, fetch_jars

VERSIONS = (("4.2.0", "4.0.0"), ("4.0.0", "4.0.0"))
"""Of the connector and of the token provider beside it, tried in this order."""

_KAFKA_CLIENTS = "3.9.1"

_DEPENDENCY = """<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"""
"""Without what it depends on: Spark itself has that, but for what is named beside it."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>cordwood.benchmarks</groupId><artifactId>spark-peer</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""


def install_connector() -> tuple[str, list[Path]]:
    """(version, jars) of the connector, fetched once."""
    failure = ""
    for version, token_provider in VERSIONS:
        lib = PEERS / f"spark-kafka-{version}"
        try:
            fetch_jars(_pom(version, token_provider), lib, "spark-sql-kafka-*.jar")
        except FetchFailed as error:
            failure = str(error)
            continue
        return version, sorted(lib.glob("*.jar"))
    raise PeerUnavailable(f"Spark's Kafka connector could not be fetched with Maven:\n{failure}")


def _pom(version: str, token_provider: str) -> str:
    wanted = (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", version),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", token_provider),
        ("org.apache.kafka", "kafka-clients", _KAFKA_CLIENTS),
        ("org.apache.commons", "commons-pool2", "2.12.1"),
    )
    return _POM.format(
        dependencies="".join(
            _DEPENDENCY.format(group=group, artifact=artifact, version=number) for group, artifact, number in wanted
        )
    )

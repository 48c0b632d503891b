"""Other people's software at pinned versions, fetched once into `benchmarks/.peers/`, which git ignores."""

import shutil
import subprocess
from pathlib import Path

from benchmarks.kafka_peer import find_java, install_kafka
from benchmarks.maven import PEERS, FetchFailed, PeerUnavailable, fetch_jars
from tests.interop_software.stage import Unavailable

KAFKA = "4.3.0"
DEBEZIUM = "3.5.0.Final"
KAFKAJS = "2.2.4"
FRANZ_GO = "v1.22.2"

JVM_FLAGS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_KAFKA_PARTS = ("kafka-streams", "connect-runtime", "connect-mirror", "connect-json", "kafka-tools")


def _pom(*dependencies: tuple[str, str, str]) -> str:
    entries = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in dependencies
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>cordwood.interop</groupId><artifactId>software</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{entries}</dependencies></project>"
    )


def _jars(pom: str, directory: str, proof: str) -> Path:
    lib = PEERS / directory
    try:
        find_java()
        fetch_jars(pom, lib, proof)
    except (PeerUnavailable, FetchFailed) as reason:
        raise Unavailable(str(reason)) from reason
    return lib


def kafka_classpath() -> str:
    """Kafka's Streams, Connect, MirrorMaker and tools."""
    parts = [("org.apache.kafka", part, KAFKA) for part in _KAFKA_PARTS]
    lib = _jars(
        _pom(*parts, ("org.slf4j", "slf4j-simple", "1.7.36")), f"kafka-software-{KAFKA}", "connect-runtime-*.jar"
    )
    return f"{lib}/*"


def java_command(main_class: str, *arguments: str, classpath: str = "") -> list[str]:
    both = f"{classpath}:{kafka_classpath()}" if classpath else kafka_classpath()
    return [find_java(), *JVM_FLAGS, "-cp", both, main_class, *arguments]


def kafka_core_command(main_class: str, *arguments: str) -> list[str]:
    """A tool that is part of Kafka's broker."""
    try:
        return install_kafka(KAFKA).command(main_class, *arguments, jvm_flags=JVM_FLAGS)
    except PeerUnavailable as reason:
        raise Unavailable(str(reason)) from reason


def compile_java(source: Path, into: Path) -> None:
    javac = shutil.which("javac")
    if javac is None:
        raise Unavailable("no Java compiler (Debian: openjdk-17-jdk-headless)")
    done = subprocess.run(
        [javac, "-cp", kafka_classpath(), "-d", str(into), str(source)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def debezium_plugins() -> Path:
    """A plugin path for Connect with Debezium's connector for PostgreSQL."""
    pom = _pom(("io.debezium", "debezium-connector-postgres", DEBEZIUM))
    return _jars(pom, f"debezium-{DEBEZIUM}", "debezium-connector-postgres-*.jar")


def kafkajs_modules() -> Path:
    """A directory whose node_modules has kafkajs."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Unavailable("no node and npm (Debian: nodejs, npm)")
    directory = PEERS / f"kafkajs-{KAFKAJS}"
    if not (directory / "node_modules" / "kafkajs").is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(directory), f"kafkajs@{KAFKAJS}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise Unavailable(f"npm could not fetch kafkajs: {done.stderr[-500:]}")
    return directory


def go_program(source: Path, module: str, version: str, into: Path) -> Path:
    """The program of this source, built with a Go module at this version."""
    go = shutil.which("go")
    if go is None:
        raise Unavailable("no Go (Debian: golang-go)")
    into.mkdir()
    shutil.copy(source, into / "main.go")
    for command in (
        [go, "mod", "init", "story"],
        [go, "get", f"{module}@{version}"],
        [go, "mod", "tidy"],
        [go, "build", "-o", "story", "."],
    ):
        done = subprocess.run(command, cwd=into, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            if command[1] in ("get", "mod"):
                raise Unavailable(f"Go could not fetch {module}: {done.stderr[-500:]}")
            raise AssertionError(done.stderr[-3000:])
    return into / "story"


def postgres_binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        raise Unavailable("no PostgreSQL (Debian: postgresql)")
    return found[-1].parent

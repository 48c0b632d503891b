"""Kafka's Java client lives through the restart of every broker: no error reaches the application."""

import re
from pathlib import Path

from tests.cluster.rolling import rolling_restart
from tests.interop_software.software import compile_java, java_command
from tests.interop_software.stage import Stage, make_topic, until

SOURCE = Path(__file__).parent / "java/RollingClients.java"
PARTITIONS = 4
READ_THE_REST_WITHIN_S = 120


def java_clients(stage: Stage) -> None:
    """All brokers are restarted by SIGTERM, then by kill -9."""
    compile_java(SOURCE, stage.path)
    cluster = stage.cluster()
    topics = ("of-plain", "of-idempotent", "of-transactional")
    for topic in topics:
        make_topic(cluster.bootstrap, topic, PARTITIONS, replicas=3, min_insync_replicas="2")
    stop = stage.path / "stop"
    command = java_command(
        "RollingClients",
        *(cluster.bootstrap, str(stop), str(READ_THE_REST_WITHIN_S), *topics),
        classpath=str(stage.path),
    )
    clients = stage.start("clients", command)
    until(lambda: "working" in clients.output(), 120, what="a record for each group")
    print(*rolling_restart(cluster), sep="\n")
    assert surfaced(clients.output()) == []
    print(*rolling_restart(cluster, kill=True), sep="\n")
    stop.touch()
    until(lambda: not clients.alive, READ_THE_REST_WITHIN_S + 120, what="the end of the clients")
    said = clients.output()
    assert surfaced(said) == []
    sent = [int(count) for count in re.findall(r"^sent \S+ (\d+)$", said, re.MULTILINE)]
    read = re.findall(r"^read \S+ (\d+) (\d+)$", said, re.MULTILINE)
    assert len(sent) == len(topics), said[-4000:]
    print(f"sent {sent}, read by each group (records, doubled) {read}")
    assert read == [(str(sum(sent)), "0")] * 2


def surfaced(said: str) -> list[str]:
    """The errors that reached the application."""
    return re.findall(r"^error .*$", said, re.MULTILINE)

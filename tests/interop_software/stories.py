"""What `make interop` plays, in this order."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tests.interop_software import clients, debezium, mirror_maker, operations, rolling, streams
from tests.interop_software.software import DEBEZIUM, FRANZ_GO, KAFKA, KAFKAJS
from tests.interop_software.stage import Stage


class Story(NamedTuple):
    name: str
    software: str
    version: str
    what: str
    play: Callable[[Stage], None]


STORIES = (
    Story("kafkajs", "kafkajs (Node.js)", KAFKAJS, "admin, idempotent producer, group, transactions", clients.kafkajs),
    Story("franz-go", "franz-go (Go)", FRANZ_GO, "idempotent producer, group, transactions", clients.franz_go),
    Story(
        "franz-go-secure",
        "franz-go (Go)",
        FRANZ_GO,
        "the same by SCRAM over TLS, with the rights of `cordwood acl add --producer` and `--consumer` alone",
        clients.franz_go_with_its_rules_alone,
    ),
    Story(
        "kafka-configs",
        "Apache Kafka's kafka-configs",
        KAFKA,
        "settings of groups, levels of loggers",
        clients.kafka_tools,
    ),
    Story(
        "mirror-maker",
        "Apache Kafka MirrorMaker 2",
        KAFKA,
        "records, topic settings and group positions from one broker to another",
        mirror_maker.mirror,
    ),
    Story(
        "mirror-maker-secure",
        "Apache Kafka MirrorMaker 2",
        KAFKA,
        "records and rights (`sync.topic.acls.enabled`) from one secure broker to another",
        mirror_maker.rules,
    ),
    Story(
        "streams",
        "Apache Kafka Streams",
        KAFKA,
        "counts by key with exactly_once_v2, killed twice with kill -9",
        streams.exactly_once,
    ),
    Story(
        "streams-secure",
        "Apache Kafka Streams",
        KAFKA,
        "the same by SCRAM over TLS, with the rights of `cordwood acl add --streams` alone",
        streams.exactly_once_with_its_rules_alone,
    ),
    Story(
        "streams-cluster",
        "Apache Kafka Streams",
        KAFKA,
        "counts by key with exactly_once_v2 on three brokers, all restarted in turn by SIGTERM, then by kill -9",
        streams.rolling_restart,
    ),
    Story(
        "java-cluster",
        "Apache Kafka's Java client",
        KAFKA,
        "producers, transactions, classic and consumer groups on three brokers, all restarted in turn by SIGTERM, "
        "then by kill -9; no error reaches the application",
        rolling.java_clients,
    ),
    *(
        Story(f"{name}-{scene}", software, KAFKA, f"{what}, while {meanwhile}", partial(play, start=start))
        for scene, play, meanwhile in (
            ("moved", operations.moved, "each of four brokers is drained, and filled again by undo or rebalance"),
            (
                "workers",
                operations.workers,
                "workers of `serve --workers` die by kill -9 and their number changes from 2 to 3, 1, 2 and 3",
            ),
            (
                "imported",
                operations.imported,
                "a single broker's directory is imported into a cluster and all topics get three replicas",
            ),
        )
        for name, software, what, start in (
            ("streams", "Apache Kafka Streams", "counts by key with exactly_once_v2", streams.Counting),
            (
                "java",
                "Apache Kafka's Java client",
                "producers, transactions, classic and consumer groups without an error",
                rolling.JavaClients,
            ),
        )
    ),
    Story(
        "debezium",
        "Debezium on PostgreSQL, in Kafka Connect",
        f"{DEBEZIUM}, Connect {KAFKA}",
        "snapshot, inserts, update, deletion; exactly once with kill -9 of the worker",
        debezium.exactly_once,
    ),
)

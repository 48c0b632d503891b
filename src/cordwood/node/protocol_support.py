"""Generates docs/protocol-support.md from the handlers' own declarations.

`python -m cordwood.node.protocol_support > docs/protocol-support.md`, or `make docs`.
"""

import sys

from cordwood.node.apis import SERVED
from cordwood.wire.apis import APIS, Api

_INTRODUCTION = """\
# Protocol support

Cordwood speaks Apache Kafka's wire protocol. This page is generated from the declarations beside the handlers
(`make docs`); a test fails when it is out of date. Version ranges are those of Kafka 4.4 unless a note says otherwise.
Only what is listed is advertised: a client that asks for anything else finds its connection closed, as with Kafka.
Keys from 10000 on are not Kafka's; clients pass over keys that they do not know (`decisions/transaction-families.md`).

| key | API | versions | note |
| --- | --- | --- | --- |
"""

_NOTES = {
    0: "Versions 0-2 are advertised and refused, as Kafka does for old librdkafka (KAFKA-18659).",
    10: "Groups and transactional ids.",
    22: "Idempotent and transactional producers; version 6 (two-phase commit) is unstable in Kafka and not offered.",
    24: "Versions 4 and 5 are for brokers: many transactions, verify only.",
    26: "From version 5 every end raises the epoch (KIP-890); transaction.version 2 is finalized.",
    28: "From version 5 on it adds the group to the transaction.",
    66: "Filtered also by a regular expression (RE2).",
    11: "The classic protocol, with static members; every assignor of the clients.",
    16: "Groups of both protocols, filtered by state and type.",
    68: "Server-side assignors uniform and range; subscription by topic names and by a regular expression (RE2).",
    1: "Long poll, sessions, topic ids; replica fetches of the cluster's own brokers.",
    2: "All special timestamps, -1 to -6.",
    29: "SECURITY_DISABLED unless `authorizer.class.name` is set ([rights](rights.md)). So are the next two.",
    32: "Topics, brokers, groups (consumer.* settings) and loggers (of this broker, under `cordwood`).",
    43: "An unclean election lets an operator accept a loss: only partitions without a leader have one.",
    44: "The same; levels of loggers hold until the broker stops.",
    74: "Topics, brokers, loggers, and groups on which something is set; there are no client metrics.",
    10_000: "Cordwood's own, for Spark's sink: a writer gets a slot of a family for a batch.",
    10_001: "Cordwood's own: the writers of a batch are alive.",
    10_002: "Cordwood's own: one decision over all writers of a batch.",
    10_003: "Cordwood's own: families, what they decided last, and their slots.",
    10_100: "Cordwood's own: damage that the broker knows of, by partition and offsets (`decisions/damage.md`).",
    10_101: "Cordwood's own, between brokers: checked batches for another replica's repair (`decisions/repair.md`).",
    10_103: "Cordwood's own: the release that the broker runs, and the clients that use it (`cordwood client list`).",
    10_102: "Cordwood's own, between brokers: positions of groups, traffic (`decisions/watching-lag.md`).",
    10_004: "Cordwood's own: what a family remembers of the batch that it decided last.",
}

_ABSENT = """
## Not served

Of the APIs that have a codec here, these are not served yet, and therefore not advertised:
"""


def _range(api: Api) -> str:
    low, high = api.min_version, api.max_version
    return str(low) if low == high else f"{low}-{high}"


def protocol_support_markdown() -> str:
    rows = [f"| {key} | {api.name} | {_range(api)} | {_NOTES.get(key, '')} |\n" for key, api in sorted(SERVED.items())]
    absent = ", ".join(api.name for key, api in sorted(APIS.items()) if key not in SERVED)
    return _INTRODUCTION + "".join(rows) + _ABSENT + absent + ".\n"


if __name__ == "__main__":
    sys.stdout.write(protocol_support_markdown())

"""The width limits of requests: the number of array elements, nested arrays included, for each API.

A limit of bytes does not suffice: two bytes can make an object of 300, and a request of 100 MB would be millions of
objects. Each width is a real need with room to spare. Elements are counted while they are read, and one too many closes
the connection, as a malformed request does. An element costs at most about 1 KB while its request is handled.
"""

from typing import Final

from cordwood.wire.apis import ApiKey

READ_BY_ONE_CLIENT: Final = 50_000
"""Partitions that one reader may follow: a MirrorMaker has some ten thousand. Its lookups and commits are as wide."""

WRITTEN_AT_ONCE: Final = 15_000
"""Batches in one Produce. The smallest is 70 bytes and a producer sends 1 MiB at a time (max.request.size): 15,000.
They are decoded in one turn."""

ADMINISTERED_AT_ONCE: Final = 10_000
"""Topics, groups, settings and the like. Kafka's controller takes 10,000 changes in one operation."""

MEMBERS: Final = 5_000
"""The members of one group in one request: members leave, or get their assignments, together."""

REPORTED_AT_ONCE: Final = 2_000
"""Entries of a broker's report: 500 positions, each perhaps in a group and a topic of its own."""

FEW: Final = 1_000
"""Filters, and protocols of a member."""

NONE: Final = 0

MAX_BYTES_WITHOUT_RECORDS: Final = 16 * 1024 * 1024
"""The largest request without records: 50,000 positions with their notes have some 5 MB. To read 100 MB of long names,
as `socket.request.max.bytes` allows for records, would hold the loop for 150 ms."""

MAX_ELEMENTS: Final[dict[int, int]] = {
    ApiKey.PRODUCE: WRITTEN_AT_ONCE,
    ApiKey.FETCH: READ_BY_ONE_CLIENT,
    ApiKey.LIST_OFFSETS: READ_BY_ONE_CLIENT,
    ApiKey.METADATA: ADMINISTERED_AT_ONCE,
    ApiKey.OFFSET_COMMIT: READ_BY_ONE_CLIENT,
    ApiKey.OFFSET_FETCH: READ_BY_ONE_CLIENT,
    ApiKey.FIND_COORDINATOR: ADMINISTERED_AT_ONCE,
    ApiKey.JOIN_GROUP: FEW,
    ApiKey.HEARTBEAT: NONE,
    ApiKey.LEAVE_GROUP: MEMBERS,
    ApiKey.SYNC_GROUP: MEMBERS,
    ApiKey.DESCRIBE_GROUPS: ADMINISTERED_AT_ONCE,
    ApiKey.LIST_GROUPS: FEW,
    ApiKey.SASL_HANDSHAKE: NONE,
    ApiKey.SASL_AUTHENTICATE: NONE,
    ApiKey.API_VERSIONS: NONE,
    ApiKey.CREATE_TOPICS: ADMINISTERED_AT_ONCE,
    ApiKey.DELETE_TOPICS: ADMINISTERED_AT_ONCE,
    ApiKey.DELETE_RECORDS: ADMINISTERED_AT_ONCE,
    ApiKey.INIT_PRODUCER_ID: NONE,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: READ_BY_ONE_CLIENT,
    ApiKey.ADD_PARTITIONS_TO_TXN: ADMINISTERED_AT_ONCE,
    ApiKey.ADD_OFFSETS_TO_TXN: NONE,
    ApiKey.END_TXN: NONE,
    ApiKey.UNREGISTER_BROKER: NONE,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ADMINISTERED_AT_ONCE,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ADMINISTERED_AT_ONCE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: FEW,
    ApiKey.ALTER_CLIENT_QUOTAS: ADMINISTERED_AT_ONCE,
    ApiKey.UPDATE_FEATURES: FEW,
    ApiKey.WRITE_TXN_MARKERS: ADMINISTERED_AT_ONCE,
    ApiKey.TXN_OFFSET_COMMIT: READ_BY_ONE_CLIENT,
    ApiKey.CREATE_DELEGATION_TOKEN: FEW,
    ApiKey.RENEW_DELEGATION_TOKEN: NONE,
    ApiKey.EXPIRE_DELEGATION_TOKEN: NONE,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: FEW,
    ApiKey.DESCRIBE_ACLS: NONE,
    ApiKey.CREATE_ACLS: ADMINISTERED_AT_ONCE,
    ApiKey.DELETE_ACLS: ADMINISTERED_AT_ONCE,
    ApiKey.DESCRIBE_CONFIGS: ADMINISTERED_AT_ONCE,
    ApiKey.ALTER_CONFIGS: ADMINISTERED_AT_ONCE,
    ApiKey.ALTER_REPLICA_LOG_DIRS: ADMINISTERED_AT_ONCE,
    ApiKey.DESCRIBE_LOG_DIRS: READ_BY_ONE_CLIENT,
    ApiKey.CREATE_PARTITIONS: ADMINISTERED_AT_ONCE,
    ApiKey.DELETE_GROUPS: ADMINISTERED_AT_ONCE,
    ApiKey.ELECT_LEADERS: READ_BY_ONE_CLIENT,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ADMINISTERED_AT_ONCE,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ADMINISTERED_AT_ONCE,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ADMINISTERED_AT_ONCE,
    ApiKey.OFFSET_DELETE: ADMINISTERED_AT_ONCE,
    ApiKey.DESCRIBE_CLUSTER: NONE,
    ApiKey.DESCRIBE_PRODUCERS: ADMINISTERED_AT_ONCE,
    ApiKey.DESCRIBE_TRANSACTIONS: ADMINISTERED_AT_ONCE,
    ApiKey.LIST_TRANSACTIONS: FEW,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: READ_BY_ONE_CLIENT,
    ApiKey.CONSUMER_GROUP_DESCRIBE: ADMINISTERED_AT_ONCE,
    ApiKey.LIST_CONFIG_RESOURCES: FEW,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ADMINISTERED_AT_ONCE,
    ApiKey.FAMILY_JOIN: NONE,
    ApiKey.FAMILY_RENEW: NONE,
    ApiKey.FAMILY_DECIDE: WRITTEN_AT_ONCE,
    ApiKey.FAMILY_LIST: ADMINISTERED_AT_ONCE,
    ApiKey.FAMILY_RECALL: NONE,
    ApiKey.DAMAGE_LIST: ADMINISTERED_AT_ONCE,
    ApiKey.SOUND_BATCHES: NONE,
    ApiKey.WATCH_REPORT: REPORTED_AT_ONCE,
    ApiKey.DESCRIBE_NODE: NONE,
}
"""Widths by API key. A served API without an entry takes no arrays."""


def max_elements(api_key: int) -> int:
    return MAX_ELEMENTS.get(api_key, NONE)

"""The table of rights: what a principal needs for each API that a node serves, and what it gets without it.

An API without an entry is not served. The entries follow Apache Kafka's; keys from 10000 on are Cordwood's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from cordwood.model.operations import Operation, ResourceKind
from cordwood.wire.apis import ApiKey

LATEST: Final = 1 << 15


class Without(Enum):
    """What a request without a right gets."""

    REFUSED = "the request is refused"
    ENTRY_REFUSED = "that entry is refused"
    LEFT_OUT = "left out"
    NOT_THE_HOLDER = "DELEGATION_TOKEN_OWNER_MISMATCH"


class Right(NamedTuple):
    operation: Operation
    kind: ResourceKind
    of: str
    """The resources that have to grant the operation, in words."""
    without: Without
    versions: range = range(LATEST)
    instead: tuple[tuple[Operation, ResourceKind], ...] = ()
    """Rights that do as well."""

    def holds_in(self, version: int) -> bool:
        return version in self.versions

    def since(self, version: int) -> Right:
        return self._replace(versions=range(version, LATEST))

    def before(self, version: int) -> Right:
        return self._replace(versions=range(version))

    def or_else(self, operation: Operation, kind: ResourceKind) -> Right:
        return self._replace(instead=(*self.instead, (operation, kind)))


Rights = tuple[Right, ...]


def _topics(operation: Operation, of: str = "each topic", without: Without = Without.ENTRY_REFUSED) -> Right:
    return Right(operation, ResourceKind.TOPIC, of, without)


def _group(operation: Operation, of: str = "the group", without: Without = Without.REFUSED) -> Right:
    return Right(operation, ResourceKind.GROUP, of, without)


def _transaction(operation: Operation, of: str = "the transactional id", without: Without = Without.REFUSED) -> Right:
    return Right(operation, ResourceKind.TRANSACTIONAL_ID, of, without)


def _cluster(operation: Operation, of: str = "", without: Without = Without.REFUSED) -> Right:
    return Right(operation, ResourceKind.CLUSTER, of, without)


NOBODY_IS_ASKED: Final[Rights] = ()
"""A peer may ask this before it has said who it is, or learns nothing but its own rights."""

ONLY_OWN_TOKENS: Final[Rights] = ()
"""Owners, requesters and renewers of a delegation token may do this, and nobody else by any right."""

_FAMILY = "the transactional id `family:NAME`"
_BY_A_BROKER = "asked by a follower"

RIGHTS: Final[Mapping[int, Rights]] = {
    ApiKey.PRODUCE: (
        _transaction(Operation.WRITE, "the transactional id, if the request has one"),
        _topics(Operation.WRITE),
    ),
    ApiKey.FETCH: (
        _cluster(Operation.CLUSTER_ACTION, _BY_A_BROKER),
        _topics(Operation.READ, "each topic, asked by a consumer"),
    ),
    ApiKey.LIST_OFFSETS: (_topics(Operation.DESCRIBE),),
    ApiKey.METADATA: (
        _topics(Operation.DESCRIBE, "each topic that the request names"),
        _topics(Operation.DESCRIBE, "each topic, if the request names none", Without.LEFT_OUT),
        _topics(Operation.CREATE, "each topic that the request would create").or_else(
            Operation.CREATE, ResourceKind.CLUSTER
        ),
    ),
    ApiKey.OFFSET_COMMIT: (_group(Operation.READ), _topics(Operation.READ)),
    ApiKey.OFFSET_FETCH: (
        _group(Operation.DESCRIBE, "each group", Without.ENTRY_REFUSED),
        _topics(Operation.DESCRIBE, "each topic that the request names"),
        _topics(Operation.DESCRIBE, "each topic, if the request names none", Without.LEFT_OUT),
    ),
    ApiKey.FIND_COORDINATOR: (
        _group(Operation.DESCRIBE, "each group", Without.ENTRY_REFUSED),
        _transaction(Operation.DESCRIBE, "each transactional id", Without.ENTRY_REFUSED),
    ),
    ApiKey.JOIN_GROUP: (_group(Operation.READ),),
    ApiKey.HEARTBEAT: (_group(Operation.READ),),
    ApiKey.LEAVE_GROUP: (_group(Operation.READ),),
    ApiKey.SYNC_GROUP: (_group(Operation.READ),),
    ApiKey.DESCRIBE_GROUPS: (_group(Operation.DESCRIBE, "each group", Without.ENTRY_REFUSED),),
    ApiKey.LIST_GROUPS: (
        _group(Operation.DESCRIBE, "each group", Without.LEFT_OUT).or_else(Operation.DESCRIBE, ResourceKind.CLUSTER),
    ),
    ApiKey.SASL_HANDSHAKE: NOBODY_IS_ASKED,
    ApiKey.SASL_AUTHENTICATE: NOBODY_IS_ASKED,
    ApiKey.API_VERSIONS: NOBODY_IS_ASKED,
    ApiKey.CREATE_TOPICS: (
        _topics(Operation.CREATE).or_else(Operation.CREATE, ResourceKind.CLUSTER),
        _topics(Operation.DESCRIBE_CONFIGS, "each topic, for its settings in the answer", Without.LEFT_OUT).since(5),
    ),
    ApiKey.DELETE_TOPICS: (
        _topics(Operation.DELETE),
        _topics(Operation.DESCRIBE, "each topic that the request names"),
    ),
    ApiKey.DELETE_RECORDS: (_topics(Operation.DELETE),),
    ApiKey.INIT_PRODUCER_ID: (
        _transaction(Operation.WRITE, "the transactional id, if the request has one"),
        _cluster(Operation.IDEMPOTENT_WRITE, "if the request has no transactional id").or_else(
            Operation.WRITE, ResourceKind.TOPIC
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        _topics(Operation.DESCRIBE).or_else(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _transaction(Operation.WRITE).before(4),
        _topics(Operation.WRITE).before(4),
        _cluster(Operation.CLUSTER_ACTION).since(4),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (_transaction(Operation.WRITE), _group(Operation.READ)),
    ApiKey.END_TXN: (_transaction(Operation.WRITE),),
    ApiKey.WRITE_TXN_MARKERS: (_cluster(Operation.CLUSTER_ACTION).or_else(Operation.ALTER, ResourceKind.CLUSTER),),
    ApiKey.TXN_OFFSET_COMMIT: (_transaction(Operation.WRITE), _group(Operation.READ), _topics(Operation.READ)),
    ApiKey.CREATE_DELEGATION_TOKEN: (
        Right(
            Operation.CREATE_TOKENS, ResourceKind.USER, "the owner `User:NAME`, if it is another user", Without.REFUSED
        ),
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: ONLY_OWN_TOKENS,
    ApiKey.EXPIRE_DELEGATION_TOKEN: (_cluster(Operation.ALTER, "for tokens of others", Without.NOT_THE_HOLDER),),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (
        Right(Operation.DESCRIBE, ResourceKind.DELEGATION_TOKEN, "each token of others, or else", Without.LEFT_OUT),
        Right(Operation.DESCRIBE_TOKENS, ResourceKind.USER, "the owner `User:NAME` of each", Without.LEFT_OUT),
    ),
    ApiKey.DESCRIBE_ACLS: (_cluster(Operation.DESCRIBE),),
    ApiKey.CREATE_ACLS: (_cluster(Operation.ALTER),),
    ApiKey.DELETE_ACLS: (_cluster(Operation.ALTER),),
    ApiKey.DESCRIBE_CONFIGS: (
        _topics(Operation.DESCRIBE_CONFIGS),
        _group(Operation.DESCRIBE_CONFIGS, "each group", Without.ENTRY_REFUSED),
        _cluster(Operation.DESCRIBE_CONFIGS, "for brokers and their loggers", Without.ENTRY_REFUSED),
    ),
    ApiKey.ALTER_CONFIGS: (
        _topics(Operation.ALTER_CONFIGS),
        _group(Operation.ALTER_CONFIGS, "each group", Without.ENTRY_REFUSED),
        _cluster(Operation.ALTER_CONFIGS, "for brokers and their loggers", Without.ENTRY_REFUSED),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        _topics(Operation.ALTER_CONFIGS),
        _group(Operation.ALTER_CONFIGS, "each group", Without.ENTRY_REFUSED),
        _cluster(Operation.ALTER_CONFIGS, "for brokers and their loggers", Without.ENTRY_REFUSED),
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (_cluster(Operation.ALTER),),
    ApiKey.DESCRIBE_LOG_DIRS: (_cluster(Operation.DESCRIBE),),
    ApiKey.CREATE_PARTITIONS: (_topics(Operation.ALTER),),
    ApiKey.DELETE_GROUPS: (_group(Operation.DELETE, "each group", Without.ENTRY_REFUSED),),
    ApiKey.ELECT_LEADERS: (_cluster(Operation.ALTER),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_cluster(Operation.ALTER),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (_cluster(Operation.DESCRIBE),),
    ApiKey.OFFSET_DELETE: (_group(Operation.DELETE), _topics(Operation.READ)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (_cluster(Operation.DESCRIBE),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (_cluster(Operation.ALTER),),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (_cluster(Operation.DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_cluster(Operation.ALTER_CONFIGS),),
    ApiKey.UPDATE_FEATURES: (_cluster(Operation.ALTER),),
    ApiKey.DESCRIBE_CLUSTER: (
        _topics(Operation.DESCRIBE, "each topic with partitions that a broker withholds", Without.LEFT_OUT),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (_topics(Operation.READ),),
    ApiKey.UNREGISTER_BROKER: (_cluster(Operation.ALTER),),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        _transaction(Operation.DESCRIBE, "each transactional id", Without.ENTRY_REFUSED),
        _topics(Operation.DESCRIBE, "each topic of a transaction", Without.LEFT_OUT),
    ),
    ApiKey.LIST_TRANSACTIONS: (_transaction(Operation.DESCRIBE, "each transactional id", Without.LEFT_OUT),),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        _group(Operation.READ),
        _topics(Operation.DESCRIBE, "each topic that the member names", Without.REFUSED),
        _topics(Operation.DESCRIBE, "each topic that the member's expression matches", Without.LEFT_OUT),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        _group(Operation.DESCRIBE, "each group", Without.ENTRY_REFUSED),
        _topics(Operation.DESCRIBE, "each topic that the group reads"),
    ),
    ApiKey.LIST_CONFIG_RESOURCES: (_cluster(Operation.DESCRIBE_CONFIGS),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        _topics(Operation.DESCRIBE, "each topic that the request names"),
        _topics(Operation.DESCRIBE, "each topic, if the request names none", Without.LEFT_OUT),
    ),
    ApiKey.FAMILY_JOIN: (_transaction(Operation.WRITE, _FAMILY),),
    ApiKey.FAMILY_RENEW: (_transaction(Operation.WRITE, _FAMILY),),
    ApiKey.FAMILY_DECIDE: (_transaction(Operation.WRITE, _FAMILY),),
    ApiKey.FAMILY_LIST: (_transaction(Operation.DESCRIBE, _FAMILY, Without.LEFT_OUT),),
    ApiKey.FAMILY_RECALL: (_transaction(Operation.DESCRIBE, _FAMILY),),
    ApiKey.DAMAGE_LIST: (_topics(Operation.DESCRIBE, without=Without.LEFT_OUT),),
    ApiKey.SOUND_BATCHES: (_cluster(Operation.CLUSTER_ACTION),),
    ApiKey.WATCH_REPORT: (_cluster(Operation.CLUSTER_ACTION),),
    ApiKey.DESCRIBE_NODE: (_cluster(Operation.DESCRIBE),),
}


def rights_for(key: int, version: int) -> Rights:
    """The rights that a request of this API needs in this version. Raises KeyError for an API without an entry."""
    return tuple(right for right in RIGHTS[key] if right.holds_in(version))

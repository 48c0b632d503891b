"""The APIs of the Kafka protocol and some of our own: keys, the versions that our codecs know, and the flexible
versions.

The ranges are those of Kafka 4.4 for which there is a codec; the versions that a broker serves and advertises are
declared beside its handlers, and never exceed them.
"""

from typing import Final, NamedTuple

from cordwood.wire.api_keys import ApiKey as ApiKey

NEVER: Final = 1 << 15
"""No version of this API is flexible."""


class Api(NamedTuple):
    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    advertised_min: int | None = None
    """The lowest version to advertise, if lower than the lowest served version."""

    @property
    def listed_min(self) -> int:
        """The lowest version in an ApiVersions response."""
        return self.min_version if self.advertised_min is None else self.advertised_min

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def narrowed(self, min_version: int, max_version: int) -> "Api":
        """The API with fewer versions, for a handler that serves fewer than the codec knows."""
        assert self.min_version <= min_version <= max_version <= self.max_version
        return self._replace(min_version=min_version, max_version=max_version)


# Produce is listed from 0 although 0-2 are refused: released librdkafka versions switch features off when they are
# missing (KAFKA-18659). InitProducerId stops at 5, because 6 (two-phase commit) is unstable and Java would pick it.
APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        Api(0, "Produce", 3, 13, 9, 0),
        Api(1, "Fetch", 4, 18, 12),
        Api(2, "ListOffsets", 1, 11, 6),
        Api(3, "Metadata", 0, 13, 9),
        Api(8, "OffsetCommit", 2, 10, 8),
        Api(9, "OffsetFetch", 1, 10, 6),
        Api(10, "FindCoordinator", 0, 6, 3),
        Api(11, "JoinGroup", 0, 9, 6),
        Api(12, "Heartbeat", 0, 4, 4),
        Api(13, "LeaveGroup", 0, 5, 4),
        Api(14, "SyncGroup", 0, 5, 4),
        Api(15, "DescribeGroups", 0, 6, 5),
        Api(16, "ListGroups", 0, 5, 3),
        Api(17, "SaslHandshake", 0, 1, NEVER),
        Api(18, "ApiVersions", 0, 5, 3),
        Api(19, "CreateTopics", 2, 7, 5),
        Api(20, "DeleteTopics", 1, 6, 4),
        Api(21, "DeleteRecords", 0, 2, 2),
        Api(22, "InitProducerId", 0, 5, 2),
        Api(23, "OffsetForLeaderEpoch", 2, 4, 4),
        Api(24, "AddPartitionsToTxn", 0, 5, 3),
        Api(25, "AddOffsetsToTxn", 0, 4, 3),
        Api(26, "EndTxn", 0, 5, 3),
        Api(27, "WriteTxnMarkers", 1, 2, 1),
        Api(28, "TxnOffsetCommit", 0, 6, 3),
        Api(29, "DescribeAcls", 1, 3, 2),
        Api(30, "CreateAcls", 1, 3, 2),
        Api(31, "DeleteAcls", 1, 3, 2),
        Api(32, "DescribeConfigs", 1, 4, 4),
        Api(33, "AlterConfigs", 0, 2, 2),
        Api(34, "AlterReplicaLogDirs", 1, 2, 2),
        Api(35, "DescribeLogDirs", 1, 5, 2),
        Api(36, "SaslAuthenticate", 0, 2, 2),
        Api(37, "CreatePartitions", 0, 3, 2),
        Api(38, "CreateDelegationToken", 1, 3, 2),
        Api(39, "RenewDelegationToken", 1, 2, 2),
        Api(40, "ExpireDelegationToken", 1, 2, 2),
        Api(41, "DescribeDelegationToken", 1, 3, 2),
        Api(42, "DeleteGroups", 0, 3, 2),
        Api(43, "ElectLeaders", 0, 2, 2),
        Api(44, "IncrementalAlterConfigs", 0, 1, 1),
        Api(45, "AlterPartitionReassignments", 0, 1, 0),
        Api(46, "ListPartitionReassignments", 0, 0, 0),
        Api(47, "OffsetDelete", 0, 0, NEVER),
        Api(48, "DescribeClientQuotas", 0, 1, 1),
        Api(49, "AlterClientQuotas", 0, 1, 1),
        Api(50, "DescribeUserScramCredentials", 0, 0, 0),
        Api(51, "AlterUserScramCredentials", 0, 0, 0),
        Api(52, "Vote", 0, 2, 0),
        Api(53, "BeginQuorumEpoch", 0, 1, 1),
        Api(54, "EndQuorumEpoch", 0, 1, 1),
        Api(55, "DescribeQuorum", 0, 2, 0),
        Api(56, "AlterPartition", 2, 3, 0),
        Api(57, "UpdateFeatures", 0, 2, 0),
        Api(58, "Envelope", 0, 0, 0),
        Api(59, "FetchSnapshot", 0, 1, 0),
        Api(60, "DescribeCluster", 0, 2, 0),
        Api(61, "DescribeProducers", 0, 0, 0),
        Api(62, "BrokerRegistration", 0, 4, 0),
        Api(63, "BrokerHeartbeat", 0, 2, 0),
        Api(64, "UnregisterBroker", 0, 0, 0),
        Api(65, "DescribeTransactions", 0, 0, 0),
        Api(66, "ListTransactions", 0, 2, 0),
        Api(67, "AllocateProducerIds", 0, 0, 0),
        Api(68, "ConsumerGroupHeartbeat", 0, 1, 0),
        Api(69, "ConsumerGroupDescribe", 0, 1, 0),
        Api(70, "ControllerRegistration", 0, 0, 0),
        Api(71, "GetTelemetrySubscriptions", 0, 0, 0),
        Api(72, "PushTelemetry", 0, 0, 0),
        Api(73, "AssignReplicasToDirs", 0, 0, 0),
        Api(74, "ListConfigResources", 0, 1, 0),
        Api(75, "DescribeTopicPartitions", 0, 0, 0),
        Api(76, "ShareGroupHeartbeat", 1, 1, 0),
        Api(77, "ShareGroupDescribe", 1, 1, 0),
        Api(78, "ShareFetch", 1, 2, 0),
        Api(79, "ShareAcknowledge", 1, 2, 0),
        Api(80, "AddRaftVoter", 0, 1, 0),
        Api(81, "RemoveRaftVoter", 0, 0, 0),
        Api(82, "UpdateRaftVoter", 0, 0, 0),
        Api(83, "InitializeShareGroupState", 0, 0, 0),
        Api(84, "ReadShareGroupState", 0, 0, 0),
        Api(85, "WriteShareGroupState", 0, 1, 0),
        Api(86, "DeleteShareGroupState", 0, 0, 0),
        Api(87, "ReadShareGroupStateSummary", 0, 1, 0),
        Api(88, "StreamsGroupHeartbeat", 0, 0, 0),
        Api(89, "StreamsGroupDescribe", 0, 0, 0),
        Api(90, "DescribeShareGroupOffsets", 0, 1, 0),
        Api(91, "AlterShareGroupOffsets", 0, 0, 0),
        Api(92, "DeleteShareGroupOffsets", 0, 0, 0),
        # Cordwood's own, far above Kafka's keys: docs/decisions/transaction-families.md.
        Api(10_000, "FamilyJoin", 0, 0, 0),
        Api(10_001, "FamilyRenew", 0, 0, 0),
        Api(10_002, "FamilyDecide", 0, 1, 0),
        Api(10_003, "FamilyList", 0, 0, 0),
        Api(10_004, "FamilyRecall", 0, 0, 0),
        # docs/decisions/damage.md and repair.md
        Api(10_100, "DamageList", 0, 1, 0),
        Api(10_101, "SoundBatches", 0, 0, 0),
        # docs/decisions/watching-lag.md
        Api(10_102, "WatchReport", 0, 0, 0),
        # node/handlers/administration/describing_node.py
        Api(10_103, "DescribeNode", 0, 0, 0),
    )
}
"""APIs by key. The connection of a peer that uses an unknown key is closed."""

FLEXIBLE_FROM: Final = {key: api.flexible_from for key, api in APIS.items()}


def flexible(key: int, version: int) -> bool:
    """True if this version has tagged fields and compact lengths. Raises KeyError for an unknown API."""
    return version >= FLEXIBLE_FROM[key]

"""Generated from `api_keys.py` by `make types`: each key names the types of its API's messages."""

from collections.abc import Iterator
from typing import ClassVar, Generic

from cordwood.wire.api_types import Asked_co
from cordwood.wire.message_types.add_offsets_to_txn import AddOffsetsToTxn
from cordwood.wire.message_types.add_partitions_to_txn import AddPartitionsToTxn
from cordwood.wire.message_types.add_raft_voter import AddRaftVoter
from cordwood.wire.message_types.allocate_producer_ids import AllocateProducerIds
from cordwood.wire.message_types.alter_client_quotas import AlterClientQuotas
from cordwood.wire.message_types.alter_configs import AlterConfigs
from cordwood.wire.message_types.alter_partition import AlterPartition
from cordwood.wire.message_types.alter_partition_reassignments import AlterPartitionReassignments
from cordwood.wire.message_types.alter_replica_log_dirs import AlterReplicaLogDirs
from cordwood.wire.message_types.alter_share_group_offsets import AlterShareGroupOffsets
from cordwood.wire.message_types.alter_user_scram_credentials import AlterUserScramCredentials
from cordwood.wire.message_types.api_versions import ApiVersions
from cordwood.wire.message_types.assign_replicas_to_dirs import AssignReplicasToDirs
from cordwood.wire.message_types.begin_quorum_epoch import BeginQuorumEpoch
from cordwood.wire.message_types.broker_heartbeat import BrokerHeartbeat
from cordwood.wire.message_types.broker_registration import BrokerRegistration
from cordwood.wire.message_types.consumer_group_describe import ConsumerGroupDescribe
from cordwood.wire.message_types.consumer_group_heartbeat import ConsumerGroupHeartbeat
from cordwood.wire.message_types.controller_registration import ControllerRegistration
from cordwood.wire.message_types.create_acls import CreateAcls
from cordwood.wire.message_types.create_delegation_token import CreateDelegationToken
from cordwood.wire.message_types.create_partitions import CreatePartitions
from cordwood.wire.message_types.create_topics import CreateTopics
from cordwood.wire.message_types.damage_list import DamageList
from cordwood.wire.message_types.delete_acls import DeleteAcls
from cordwood.wire.message_types.delete_groups import DeleteGroups
from cordwood.wire.message_types.delete_records import DeleteRecords
from cordwood.wire.message_types.delete_share_group_offsets import DeleteShareGroupOffsets
from cordwood.wire.message_types.delete_share_group_state import DeleteShareGroupState
from cordwood.wire.message_types.delete_topics import DeleteTopics
from cordwood.wire.message_types.describe_acls import DescribeAcls
from cordwood.wire.message_types.describe_client_quotas import DescribeClientQuotas
from cordwood.wire.message_types.describe_cluster import DescribeCluster
from cordwood.wire.message_types.describe_configs import DescribeConfigs
from cordwood.wire.message_types.describe_delegation_token import DescribeDelegationToken
from cordwood.wire.message_types.describe_groups import DescribeGroups
from cordwood.wire.message_types.describe_log_dirs import DescribeLogDirs
from cordwood.wire.message_types.describe_node import DescribeNode
from cordwood.wire.message_types.describe_producers import DescribeProducers
from cordwood.wire.message_types.describe_quorum import DescribeQuorum
from cordwood.wire.message_types.describe_share_group_offsets import DescribeShareGroupOffsets
from cordwood.wire.message_types.describe_topic_partitions import DescribeTopicPartitions
from cordwood.wire.message_types.describe_transactions import DescribeTransactions
from cordwood.wire.message_types.describe_user_scram_credentials import DescribeUserScramCredentials
from cordwood.wire.message_types.elect_leaders import ElectLeaders
from cordwood.wire.message_types.end_quorum_epoch import EndQuorumEpoch
from cordwood.wire.message_types.end_txn import EndTxn
from cordwood.wire.message_types.envelope import Envelope
from cordwood.wire.message_types.expire_delegation_token import ExpireDelegationToken
from cordwood.wire.message_types.family_decide import FamilyDecide
from cordwood.wire.message_types.family_join import FamilyJoin
from cordwood.wire.message_types.family_list import FamilyList
from cordwood.wire.message_types.family_recall import FamilyRecall
from cordwood.wire.message_types.family_renew import FamilyRenew
from cordwood.wire.message_types.fetch import Fetch
from cordwood.wire.message_types.fetch_snapshot import FetchSnapshot
from cordwood.wire.message_types.find_coordinator import FindCoordinator
from cordwood.wire.message_types.get_telemetry_subscriptions import GetTelemetrySubscriptions
from cordwood.wire.message_types.heartbeat import Heartbeat
from cordwood.wire.message_types.incremental_alter_configs import IncrementalAlterConfigs
from cordwood.wire.message_types.init_producer_id import InitProducerId
from cordwood.wire.message_types.initialize_share_group_state import InitializeShareGroupState
from cordwood.wire.message_types.join_group import JoinGroup
from cordwood.wire.message_types.leave_group import LeaveGroup
from cordwood.wire.message_types.list_config_resources import ListConfigResources
from cordwood.wire.message_types.list_groups import ListGroups
from cordwood.wire.message_types.list_offsets import ListOffsets
from cordwood.wire.message_types.list_partition_reassignments import ListPartitionReassignments
from cordwood.wire.message_types.list_transactions import ListTransactions
from cordwood.wire.message_types.metadata import Metadata
from cordwood.wire.message_types.offset_commit import OffsetCommit
from cordwood.wire.message_types.offset_delete import OffsetDelete
from cordwood.wire.message_types.offset_fetch import OffsetFetch
from cordwood.wire.message_types.offset_for_leader_epoch import OffsetForLeaderEpoch
from cordwood.wire.message_types.produce import Produce
from cordwood.wire.message_types.push_telemetry import PushTelemetry
from cordwood.wire.message_types.read_share_group_state import ReadShareGroupState
from cordwood.wire.message_types.read_share_group_state_summary import ReadShareGroupStateSummary
from cordwood.wire.message_types.remove_raft_voter import RemoveRaftVoter
from cordwood.wire.message_types.renew_delegation_token import RenewDelegationToken
from cordwood.wire.message_types.sasl_authenticate import SaslAuthenticate
from cordwood.wire.message_types.sasl_handshake import SaslHandshake
from cordwood.wire.message_types.share_acknowledge import ShareAcknowledge
from cordwood.wire.message_types.share_fetch import ShareFetch
from cordwood.wire.message_types.share_group_describe import ShareGroupDescribe
from cordwood.wire.message_types.share_group_heartbeat import ShareGroupHeartbeat
from cordwood.wire.message_types.sound_batches import SoundBatches
from cordwood.wire.message_types.streams_group_describe import StreamsGroupDescribe
from cordwood.wire.message_types.streams_group_heartbeat import StreamsGroupHeartbeat
from cordwood.wire.message_types.sync_group import SyncGroup
from cordwood.wire.message_types.txn_offset_commit import TxnOffsetCommit
from cordwood.wire.message_types.unregister_broker import UnregisterBroker
from cordwood.wire.message_types.update_features import UpdateFeatures
from cordwood.wire.message_types.update_raft_voter import UpdateRaftVoter
from cordwood.wire.message_types.vote import Vote
from cordwood.wire.message_types.watch_report import WatchReport
from cordwood.wire.message_types.write_share_group_state import WriteShareGroupState
from cordwood.wire.message_types.write_txn_markers import WriteTxnMarkers

class _Keys(type):
    def __iter__(cls) -> Iterator[ApiKey]: ...

class ApiKey(int, Generic[Asked_co], metaclass=_Keys):
    name: str
    value: int
    PRODUCE: ClassVar[ApiKey[Produce]]
    FETCH: ClassVar[ApiKey[Fetch]]
    LIST_OFFSETS: ClassVar[ApiKey[ListOffsets]]
    METADATA: ClassVar[ApiKey[Metadata]]
    OFFSET_COMMIT: ClassVar[ApiKey[OffsetCommit]]
    OFFSET_FETCH: ClassVar[ApiKey[OffsetFetch]]
    FIND_COORDINATOR: ClassVar[ApiKey[FindCoordinator]]
    JOIN_GROUP: ClassVar[ApiKey[JoinGroup]]
    HEARTBEAT: ClassVar[ApiKey[Heartbeat]]
    LEAVE_GROUP: ClassVar[ApiKey[LeaveGroup]]
    SYNC_GROUP: ClassVar[ApiKey[SyncGroup]]
    DESCRIBE_GROUPS: ClassVar[ApiKey[DescribeGroups]]
    LIST_GROUPS: ClassVar[ApiKey[ListGroups]]
    SASL_HANDSHAKE: ClassVar[ApiKey[SaslHandshake]]
    API_VERSIONS: ClassVar[ApiKey[ApiVersions]]
    CREATE_TOPICS: ClassVar[ApiKey[CreateTopics]]
    DELETE_TOPICS: ClassVar[ApiKey[DeleteTopics]]
    DELETE_RECORDS: ClassVar[ApiKey[DeleteRecords]]
    INIT_PRODUCER_ID: ClassVar[ApiKey[InitProducerId]]
    OFFSET_FOR_LEADER_EPOCH: ClassVar[ApiKey[OffsetForLeaderEpoch]]
    ADD_PARTITIONS_TO_TXN: ClassVar[ApiKey[AddPartitionsToTxn]]
    ADD_OFFSETS_TO_TXN: ClassVar[ApiKey[AddOffsetsToTxn]]
    END_TXN: ClassVar[ApiKey[EndTxn]]
    WRITE_TXN_MARKERS: ClassVar[ApiKey[WriteTxnMarkers]]
    TXN_OFFSET_COMMIT: ClassVar[ApiKey[TxnOffsetCommit]]
    DESCRIBE_ACLS: ClassVar[ApiKey[DescribeAcls]]
    CREATE_ACLS: ClassVar[ApiKey[CreateAcls]]
    DELETE_ACLS: ClassVar[ApiKey[DeleteAcls]]
    DESCRIBE_CONFIGS: ClassVar[ApiKey[DescribeConfigs]]
    ALTER_CONFIGS: ClassVar[ApiKey[AlterConfigs]]
    ALTER_REPLICA_LOG_DIRS: ClassVar[ApiKey[AlterReplicaLogDirs]]
    DESCRIBE_LOG_DIRS: ClassVar[ApiKey[DescribeLogDirs]]
    SASL_AUTHENTICATE: ClassVar[ApiKey[SaslAuthenticate]]
    CREATE_PARTITIONS: ClassVar[ApiKey[CreatePartitions]]
    CREATE_DELEGATION_TOKEN: ClassVar[ApiKey[CreateDelegationToken]]
    RENEW_DELEGATION_TOKEN: ClassVar[ApiKey[RenewDelegationToken]]
    EXPIRE_DELEGATION_TOKEN: ClassVar[ApiKey[ExpireDelegationToken]]
    DESCRIBE_DELEGATION_TOKEN: ClassVar[ApiKey[DescribeDelegationToken]]
    DELETE_GROUPS: ClassVar[ApiKey[DeleteGroups]]
    ELECT_LEADERS: ClassVar[ApiKey[ElectLeaders]]
    INCREMENTAL_ALTER_CONFIGS: ClassVar[ApiKey[IncrementalAlterConfigs]]
    ALTER_PARTITION_REASSIGNMENTS: ClassVar[ApiKey[AlterPartitionReassignments]]
    LIST_PARTITION_REASSIGNMENTS: ClassVar[ApiKey[ListPartitionReassignments]]
    OFFSET_DELETE: ClassVar[ApiKey[OffsetDelete]]
    DESCRIBE_CLIENT_QUOTAS: ClassVar[ApiKey[DescribeClientQuotas]]
    ALTER_CLIENT_QUOTAS: ClassVar[ApiKey[AlterClientQuotas]]
    DESCRIBE_USER_SCRAM_CREDENTIALS: ClassVar[ApiKey[DescribeUserScramCredentials]]
    ALTER_USER_SCRAM_CREDENTIALS: ClassVar[ApiKey[AlterUserScramCredentials]]
    VOTE: ClassVar[ApiKey[Vote]]
    BEGIN_QUORUM_EPOCH: ClassVar[ApiKey[BeginQuorumEpoch]]
    END_QUORUM_EPOCH: ClassVar[ApiKey[EndQuorumEpoch]]
    DESCRIBE_QUORUM: ClassVar[ApiKey[DescribeQuorum]]
    ALTER_PARTITION: ClassVar[ApiKey[AlterPartition]]
    UPDATE_FEATURES: ClassVar[ApiKey[UpdateFeatures]]
    ENVELOPE: ClassVar[ApiKey[Envelope]]
    FETCH_SNAPSHOT: ClassVar[ApiKey[FetchSnapshot]]
    DESCRIBE_CLUSTER: ClassVar[ApiKey[DescribeCluster]]
    DESCRIBE_PRODUCERS: ClassVar[ApiKey[DescribeProducers]]
    BROKER_REGISTRATION: ClassVar[ApiKey[BrokerRegistration]]
    BROKER_HEARTBEAT: ClassVar[ApiKey[BrokerHeartbeat]]
    UNREGISTER_BROKER: ClassVar[ApiKey[UnregisterBroker]]
    DESCRIBE_TRANSACTIONS: ClassVar[ApiKey[DescribeTransactions]]
    LIST_TRANSACTIONS: ClassVar[ApiKey[ListTransactions]]
    ALLOCATE_PRODUCER_IDS: ClassVar[ApiKey[AllocateProducerIds]]
    CONSUMER_GROUP_HEARTBEAT: ClassVar[ApiKey[ConsumerGroupHeartbeat]]
    CONSUMER_GROUP_DESCRIBE: ClassVar[ApiKey[ConsumerGroupDescribe]]
    CONTROLLER_REGISTRATION: ClassVar[ApiKey[ControllerRegistration]]
    GET_TELEMETRY_SUBSCRIPTIONS: ClassVar[ApiKey[GetTelemetrySubscriptions]]
    PUSH_TELEMETRY: ClassVar[ApiKey[PushTelemetry]]
    ASSIGN_REPLICAS_TO_DIRS: ClassVar[ApiKey[AssignReplicasToDirs]]
    LIST_CONFIG_RESOURCES: ClassVar[ApiKey[ListConfigResources]]
    DESCRIBE_TOPIC_PARTITIONS: ClassVar[ApiKey[DescribeTopicPartitions]]
    SHARE_GROUP_HEARTBEAT: ClassVar[ApiKey[ShareGroupHeartbeat]]
    SHARE_GROUP_DESCRIBE: ClassVar[ApiKey[ShareGroupDescribe]]
    SHARE_FETCH: ClassVar[ApiKey[ShareFetch]]
    SHARE_ACKNOWLEDGE: ClassVar[ApiKey[ShareAcknowledge]]
    ADD_RAFT_VOTER: ClassVar[ApiKey[AddRaftVoter]]
    REMOVE_RAFT_VOTER: ClassVar[ApiKey[RemoveRaftVoter]]
    UPDATE_RAFT_VOTER: ClassVar[ApiKey[UpdateRaftVoter]]
    INITIALIZE_SHARE_GROUP_STATE: ClassVar[ApiKey[InitializeShareGroupState]]
    READ_SHARE_GROUP_STATE: ClassVar[ApiKey[ReadShareGroupState]]
    WRITE_SHARE_GROUP_STATE: ClassVar[ApiKey[WriteShareGroupState]]
    DELETE_SHARE_GROUP_STATE: ClassVar[ApiKey[DeleteShareGroupState]]
    READ_SHARE_GROUP_STATE_SUMMARY: ClassVar[ApiKey[ReadShareGroupStateSummary]]
    STREAMS_GROUP_HEARTBEAT: ClassVar[ApiKey[StreamsGroupHeartbeat]]
    STREAMS_GROUP_DESCRIBE: ClassVar[ApiKey[StreamsGroupDescribe]]
    DESCRIBE_SHARE_GROUP_OFFSETS: ClassVar[ApiKey[DescribeShareGroupOffsets]]
    ALTER_SHARE_GROUP_OFFSETS: ClassVar[ApiKey[AlterShareGroupOffsets]]
    DELETE_SHARE_GROUP_OFFSETS: ClassVar[ApiKey[DeleteShareGroupOffsets]]
    FAMILY_JOIN: ClassVar[ApiKey[FamilyJoin]]
    FAMILY_RENEW: ClassVar[ApiKey[FamilyRenew]]
    FAMILY_DECIDE: ClassVar[ApiKey[FamilyDecide]]
    FAMILY_LIST: ClassVar[ApiKey[FamilyList]]
    FAMILY_RECALL: ClassVar[ApiKey[FamilyRecall]]
    DAMAGE_LIST: ClassVar[ApiKey[DamageList]]
    SOUND_BATCHES: ClassVar[ApiKey[SoundBatches]]
    WATCH_REPORT: ClassVar[ApiKey[WatchReport]]
    DESCRIBE_NODE: ClassVar[ApiKey[DescribeNode]]

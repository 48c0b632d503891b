"""The content of the metadata store: the names of its keys, and their values as JSON.

Keys, relative to the cluster:

    cluster_id                      text, written once
    metadata_version                the finalised version of the rows (metadata_version.py)
    broker_epoch/<broker>           a counter that every registration of the broker raises
    brokers/<broker>                BrokerRow: epoch, incarnation, endpoints, rack, range of metadata versions, storage,
                                    key; under a lease
    roll_calls/<name>               empty, under the asker's lease: brokers write what is below once they have seen it
    roll_calls/<name>/<broker>      empty, under the broker's lease: the broker's answer
    evidence/<broker>/<epoch>/<observer>
                                    empty, under the observer's lease: connections to that registration were refused
    storage/<broker>                the storage id with which the broker's fence was lifted last. While there is this
                                    key, the broker is a member of the cluster
    members/<broker>                MemberRow: the endpoints and the rack that the member had then
    controller                      ControllerRow, under the lease of the broker that is the controller. The key's
                                    create_revision is the controller's epoch
    topic_names/<name>              the topic's id. A topic exists if and only if this key does
    topics/<id>                     TopicRow: name and partition count. Partitions from the count on do not exist (yet);
                                    the count is 0 while a creation is under way
    partitions/<id>/<number>        PartitionRow
    configs/topics/<id>             what was set on the topic: name to text
    configs/brokers/<broker>        what was set on one broker while it ran
    configs/brokers/default         what was set on all brokers while they ran
    deleted_topics/<id>             a tombstone: the name of a deleted topic, brokers with directories of it
    configs/groups/<group>          what was set on one consumer group
    acls/<digest>                   a rule of access (acls.py)
    acls_changed                    when a rule was last made or removed, in milliseconds since 1970: brokers tell by it
                                    how late they hear of changes
    users/<name>                    the keys of a user's password (users.py)
    users_secret                    random bytes, from which the answers for unknown users are made; written with the
                                    first user
    quotas/<digest>                 the quotas of an entity: a user, a client id, an address, a default (quotas.py)
    tokens/<id>                     a delegation token, without its secret (tokens.py)
    token_key                       the fingerprint of the key of delegation tokens; written with each registration of a
                                    broker that has the key
    producer_id_block               the first producer id that was never handed out
    import                          the id of the import that made the cluster of a single broker's directory; without
                                    cluster_id the import is under way, and no broker may start

A newer release may add fields. A row keeps the fields that this release does not know in `unknown`, and puts them back
when it is written again.
"""

import json
from bisect import bisect_left
from functools import lru_cache
from typing import Any, NamedTuple

from cordwood.cluster.metadata.versions import FIRST_VERSION, ONLY_FIRST, SHORT_PARTITION_ROWS, VersionRange
from cordwood.model.errors import EnvironmentFailure
from cordwood.model.identifiers import TopicId

CLUSTER_ID = "cluster_id"
METADATA_VERSION = "metadata_version"
IMPORT = "import"
PRODUCER_ID_BLOCK = "producer_id_block"
CONTROLLER = "controller"
BROKER_EPOCHS = "broker_epoch/"
BROKERS = "brokers/"
STORAGE_IDS = "storage/"
MEMBERS = "members/"
EVIDENCE = "evidence/"
ROLL_CALLS = "roll_calls/"
TOPIC_NAMES = "topic_names/"
TOPICS = "topics/"
DELETED_TOPICS = "deleted_topics/"
PARTITIONS = "partitions/"
TOPIC_CONFIGS = "configs/topics/"
BROKER_CONFIGS = "configs/brokers/"
DEFAULT_BROKER_CONFIG = BROKER_CONFIGS + "default"
GROUP_CONFIGS = "configs/groups/"
ACLS = "acls/"
ACLS_CHANGED = "acls_changed"
USERS = "users/"
USERS_SECRET = "users_secret"
QUOTAS = "quotas/"
TOKENS = "tokens/"
TOKEN_KEY = "token_key"


class DamagedMetadata(EnvironmentFailure):
    """The store holds a value that no version of this program writes."""


Unknown = tuple[tuple[str, Any], ...]
"""Fields that a newer release wrote, by name."""


class Endpoint(NamedTuple):
    """The address at which clients of a listener reach a broker."""

    listener: str
    host: str
    port: int


class LogEnd(NamedTuple):
    """The end of a broker's log of a partition whose possible leaders may all have lost records."""

    partition: str
    """Topic id and number, with a slash."""
    leader_epoch: int
    """The epoch of the partition's row when the broker looked: there is no leader in it, so the log stays as it is."""
    last_epoch: int
    """The leader epoch of the last record; -1: there is none."""
    end: int
    start: int
    """The recorded start of the log: all records before it were committed once."""


class BrokerRow(NamedTuple):
    """A broker as it is registered. Its epoch is 0 before that."""

    epoch: int
    incarnation: str
    """An id of this run of the broker."""
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    metadata_versions: VersionRange = ONLY_FIRST
    storage_id: str = ""
    """The id of the broker's data directory: another id means that the logs of an earlier registration are gone."""
    unclean: bool = False
    """The machine was started again and the broker had not stopped cleanly: unsynced records are gone."""
    fenced: bool = False
    """The controller has not taken note of the registration yet: the broker leads nothing."""
    draining: bool = False
    """The broker stops: the controller moves its leaderships away."""
    starting: bool = False
    """The broker does not answer requests yet: its fence stays."""
    disk_full: bool = False
    """The broker found no space for records: others lead, and acknowledgements do not wait for it."""
    damaged: tuple[str, ...] = ()
    """Partitions (topic id and number, with a slash) with damage that is not repaired; "*": too many to name."""
    key: int = 0
    """A secret of brokers: the requests of this registration to other brokers carry it. 0: a release without keys."""
    withheld: tuple[str, ...] = ()
    """Partitions, named as above, with committed records here that their leader lacks: the broker keeps its log as it
    is until an operator accepts their loss."""
    log_ends: tuple[LogEnd, ...] = ()
    """The ends of logs that the controller asks for, by partition, while it looks for the longest."""
    unknown: Unknown = ()

    def __repr__(self) -> str:
        """The row without its secret, for logs."""
        told = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items() if name != "key")
        return f"BrokerRow({told})"

    def endpoint(self, listener: str) -> Endpoint | None:
        """The broker's endpoint for clients of a listener; None: the broker has no such listener."""
        return _endpoint(self.endpoints, listener)

    @property
    def electable(self) -> bool:
        """True if the broker may become the leader of a partition."""
        return not (self.fenced or self.draining)

    def is_damaged(self, topic_id: TopicId, partition: int) -> bool:
        """True if the broker's log of the partition has damage that is not repaired."""
        return _names(self.damaged, topic_id, partition)

    def withholds(self, topic_id: TopicId, partition: int) -> bool:
        """True if the broker's log of the partition has committed records that the leader lacks."""
        return _names(self.withheld, topic_id, partition)

    def log_end(self, topic_id: TopicId, partition: int, leader_epoch: int) -> LogEnd | None:
        """The end of the broker's log of the partition, as the broker reported it in this epoch of the partition's row;
        None: it did not."""
        name = damaged_name(topic_id, partition)
        place = bisect_left(self.log_ends, (name, leader_epoch))
        told = self.log_ends[place] if place < len(self.log_ends) else None
        if told is None or (told.partition, told.leader_epoch) != (name, leader_epoch):
            return None
        return told

    @property
    def takes_records(self) -> bool:
        """True if the broker may lead, or come into an in-sync set, with room for new records."""
        return self.electable and not self.disk_full


def _names(named: tuple[str, ...], topic_id: TopicId, partition: int) -> bool:
    return bool(named) and (named[0] == ALL_DAMAGED or damaged_name(topic_id, partition) in named)


class MemberRow(NamedTuple):
    """The last address of a broker when it began to take part: its registration is gone while it is away."""

    endpoints: tuple[Endpoint, ...] = ()
    """Empty: not known, since a controller of an earlier release lifted the broker's fence."""
    rack: str | None = None
    unknown: Unknown = ()

    def endpoint(self, listener: str) -> Endpoint | None:
        """The broker's endpoint for clients of a listener; None: it had no such listener, or that is not known."""
        return _endpoint(self.endpoints, listener)


def _endpoint(endpoints: tuple[Endpoint, ...], listener: str) -> Endpoint | None:
    return next((endpoint for endpoint in endpoints if endpoint.listener == listener), None)


class ControllerRow(NamedTuple):
    broker: int
    epoch: int
    unknown: Unknown = ()


class TopicRow(NamedTuple):
    name: str
    partition_count: int
    unknown: Unknown = ()


class PartitionRow(NamedTuple):
    """A partition as stored. `leader_epoch` holds while the leader's broker epoch is `leader_broker_epoch`; each later
    registration of the leader adds one (docs/decisions/leader-epochs.md)."""

    leader: int
    leader_broker_epoch: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    partition_epoch: int = 0
    recovering: bool = False
    lossy_epoch: int = 0
    """The epoch of the last leader that was elected although it may lack acknowledged records (an accepted loss, an
    unclean election); 0: none. A broker that has not followed the partition since then, and is no longer a replica,
    sets its log aside."""
    former_storage: tuple[tuple[int, str], ...] = ()
    """Brokers, and the storage ids with which they had every acknowledged record: all of them lost their storage, and
    none is left to lead. A broker that comes back with such a storage id leads again."""
    accepted_epoch: int = 0
    """The epoch of the last leader with which an operator accepted a loss; 0: none, or a release that does not note it.
    A replica that has committed records from before, which the leader lacks, sets its log aside."""
    unknown: Unknown = ()


def broker_epoch_key(broker_id: int) -> str:
    return f"{BROKER_EPOCHS}{broker_id}"


def broker_key(broker_id: int) -> str:
    return f"{BROKERS}{broker_id}"


def evidence_key(broker_id: int, broker_epoch: int, observer: int) -> str:
    return f"{EVIDENCE}{broker_id}/{broker_epoch}/{observer}"


def roll_call_key(name: str) -> str:
    return f"{ROLL_CALLS}{name}"


def roll_call_answer_key(name: str, broker_id: int | str = "") -> str:
    """The key of a broker's answer; without a broker the beginning of all answers."""
    return f"{ROLL_CALLS}{name}/{broker_id}"


def storage_key(broker_id: int) -> str:
    return f"{STORAGE_IDS}{broker_id}"


def member_key(broker_id: int) -> str:
    return f"{MEMBERS}{broker_id}"


def broker_config_key(broker_id: int) -> str:
    return f"{BROKER_CONFIGS}{broker_id}"


def group_config_key(group_id: str) -> str:
    return GROUP_CONFIGS + group_id


def acl_key(acl_id: str) -> str:
    return ACLS + acl_id


def user_key(name: str) -> str:
    return USERS + name


def quota_key(quota_id: str) -> str:
    return QUOTAS + quota_id


def token_row_key(token_id: str) -> str:
    return TOKENS + token_id


def topic_name_key(name: str) -> str:
    return TOPIC_NAMES + name


def topic_key(topic_id: TopicId) -> str:
    return f"{TOPICS}{topic_id}"


def deleted_topic_key(topic_id: TopicId) -> str:
    return f"{DELETED_TOPICS}{topic_id}"


def topic_config_key(topic_id: TopicId) -> str:
    return f"{TOPIC_CONFIGS}{topic_id}"


def partitions_prefix(topic_id: TopicId) -> str:
    return f"{PARTITIONS}{topic_id}/"


ALL_DAMAGED = "*"


def damaged_name(topic_id: TopicId, partition: int) -> str:
    """A partition in `BrokerRow.damaged` and `withheld`."""
    return f"{topic_id}/{partition}"


def partition_key(topic_id: TopicId, partition: int) -> str:
    return f"{PARTITIONS}{topic_id}/{partition}"


_ALWAYS = object()
"""Stands for the default of fields that have none: they are always written."""

_Row = BrokerRow | MemberRow | ControllerRow | TopicRow | PartitionRow


def _encode_row(row: _Row, **encoded: Any) -> bytes:
    fields = row._asdict()
    return _encode({**dict(fields.pop("unknown")), **fields, **encoded})


def _unknown(row: type[_Row], fields: dict[str, Any]) -> Unknown:
    return tuple((name, value) for name, value in fields.items() if name not in row._fields)


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def _decode(key: str, value: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(value)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise DamagedMetadata(f"{key} does not hold a JSON object: {value[:80]!r}")
    return fields


def encode_broker(row: BrokerRow) -> bytes:
    return _encode_row(row, endpoints=[endpoint._asdict() for endpoint in row.endpoints])


def decode_broker(key: str, value: bytes) -> BrokerRow:
    fields = _decode(key, value)
    try:
        endpoints = _endpoints(fields)
        versions = VersionRange(*fields.get("metadata_versions", ONLY_FIRST))
        return BrokerRow(
            fields["epoch"],
            fields["incarnation"],
            endpoints,
            fields.get("rack"),
            versions,
            fields.get("storage_id", ""),
            fields.get("unclean", False),
            fields.get("fenced", False),
            fields.get("draining", False),
            fields.get("starting", False),
            fields.get("disk_full", False),
            tuple(fields.get("damaged", ())),
            fields.get("key", 0),
            tuple(fields.get("withheld", ())),
            tuple(LogEnd(*each) for each in fields.get("log_ends", ())),
            _unknown(BrokerRow, fields),
        )
    except (KeyError, TypeError) as error:
        raise DamagedMetadata(f"{key} lacks {error}") from None


def encode_member(row: MemberRow) -> bytes:
    return _encode_row(row, endpoints=[endpoint._asdict() for endpoint in row.endpoints])


def decode_member(key: str, value: bytes) -> MemberRow:
    fields = _decode(key, value)
    try:
        return MemberRow(_endpoints(fields), fields.get("rack"), _unknown(MemberRow, fields))
    except (KeyError, TypeError) as error:
        raise DamagedMetadata(f"{key} lacks {error}") from None


def _endpoints(fields: dict[str, Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(each["listener"], each["host"], each["port"]) for each in fields["endpoints"])


def encode_controller(row: ControllerRow) -> bytes:
    return _encode_row(row)


def decode_controller(value: bytes) -> ControllerRow:
    fields = _decode(CONTROLLER, value)
    try:
        return ControllerRow(int(fields["broker"]), int(fields["epoch"]), _unknown(ControllerRow, fields))
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedMetadata(f"{CONTROLLER} lacks {error}") from None


def encode_topic(row: TopicRow) -> bytes:
    return _encode_row(row)


def decode_topic(key: str, value: bytes) -> TopicRow:
    fields = _decode(key, value)
    try:
        return TopicRow(str(fields["name"]), int(fields["partition_count"]), _unknown(TopicRow, fields))
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedMetadata(f"{key} lacks {error}") from None


def encode_partition(row: PartitionRow, version: int = FIRST_VERSION) -> bytes:
    """The row as brokers of a metadata version read it. Every version reads the rows of earlier ones."""
    if version < SHORT_PARTITION_ROWS:
        fields = row._asdict()
        for name in ("lossy_epoch", "former_storage", "accepted_epoch"):
            # Releases without these fields write equal rows.
            if not fields[name]:
                del fields[name]
        return _encode({**dict(fields.pop("unknown")), **fields})
    fields = row._asdict()
    unknown = dict(fields.pop("unknown"))
    short = {name: value for name, value in fields.items() if value != PartitionRow._field_defaults.get(name, _ALWAYS)}
    return _encode({**unknown, **short})


# Many partitions of a topic are stored as the same bytes: decoding equal bytes once makes 10,000 partitions cheap to
# load and to hold. 100 brokers have 9,900 pairs of a leader and its first follower.
@lru_cache(maxsize=16_384)
def decode_partition(value: bytes) -> PartitionRow:
    fields = _decode("a partition", value)
    try:
        return PartitionRow(
            leader=fields["leader"],
            leader_broker_epoch=fields["leader_broker_epoch"],
            leader_epoch=fields["leader_epoch"],
            replicas=tuple(fields["replicas"]),
            isr=tuple(fields["isr"]),
            elr=tuple(fields.get("elr", ())),
            adding=tuple(fields.get("adding", ())),
            removing=tuple(fields.get("removing", ())),
            partition_epoch=fields.get("partition_epoch", 0),
            recovering=fields.get("recovering", False),
            lossy_epoch=fields.get("lossy_epoch", 0),
            former_storage=tuple((broker, storage_id) for broker, storage_id in fields.get("former_storage", ())),
            accepted_epoch=fields.get("accepted_epoch", 0),
            unknown=_unknown(PartitionRow, fields),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedMetadata(f"a partition lacks {error}: {value[:200]!r}") from None


def encode_overrides(overrides: dict[str, str]) -> bytes:
    return _encode(overrides)


def decode_overrides(key: str, value: bytes) -> dict[str, str]:
    overrides = _decode(key, value)
    if not all(isinstance(text, str) for text in overrides.values()):
        raise DamagedMetadata(f"{key} holds a value that is no text: {value[:80]!r}")
    return overrides

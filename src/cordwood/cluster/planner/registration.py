"""Plans of the durable counters, a broker's epoch and blocks of producer ids, and of the cluster's id."""

from typing import Final, NamedTuple

from cordwood.cluster.metadata.image import ControllerImage
from cordwood.cluster.metadata.rows import (
    CLUSTER_ID,
    CONTROLLER,
    IMPORT,
    METADATA_VERSION,
    PRODUCER_ID_BLOCK,
    BrokerRow,
    ControllerRow,
    DamagedMetadata,
    LogEnd,
    MemberRow,
    broker_epoch_key,
    broker_key,
    decode_broker,
    encode_broker,
    encode_controller,
    encode_member,
    member_key,
    storage_key,
)
from cordwood.cluster.metadata.versions import FIRST_VERSION
from cordwood.cluster.planner.store_transactions import Plan, StoreTxn
from cordwood.cluster.stores.interface import (
    Compare,
    Delete,
    KeyValue,
    Put,
    Relation,
    Target,
    absent,
    has_value,
    present,
    unchanged_since,
)

PRODUCER_IDS_PER_BLOCK = 1000
PRODUCER_IDS_PER_MS = 1000
"""A block has more ids than any broker hands out, so the counter stays behind the clock. Ids are below 2^53 until the
year 2255."""


NOTHING_ELSE: Final = StoreTxn((), ())


class Condition(NamedTuple):
    """The condition of a broker, as its row reports it."""

    starting: bool = False
    draining: bool = False
    disk_full: bool = False
    damaged: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    log_ends: tuple[LogEnd, ...] = ()


class RegisteredBroker(NamedTuple):
    epoch: int
    row: Put
    plan: Plan


class ProducerIdBlock(NamedTuple):
    producer_ids: range
    plan: Plan


def plan_cluster_id(cluster_id: str, metadata_version: int) -> Plan:
    """Names the cluster, if it has no id yet and no import will give it one, and finalises the version of its
    metadata."""
    puts = (Put(CLUSTER_ID, cluster_id.encode()), Put(METADATA_VERSION, b"%d" % metadata_version))
    return Plan((), StoreTxn((absent(CLUSTER_ID), absent(IMPORT)), puts), happened=(present(CLUSTER_ID),))


def plan_first_metadata_version() -> Plan:
    """Gives a store from before versions were stored the version that it has."""
    commit = StoreTxn((absent(METADATA_VERSION),), (Put(METADATA_VERSION, b"%d" % FIRST_VERSION),))
    return Plan((), commit, happened=(present(METADATA_VERSION),))


def finalised_version(item: KeyValue) -> int:
    return _number(item)


def plan_registration(
    broker_id: int,
    registration: BrokerRow,
    epoch: KeyValue | None,
    lease: int = 0,
    finalised: KeyValue | None = None,
    together: StoreTxn = NOTHING_ELSE,
) -> RegisteredBroker:
    """Raises the broker's epoch, and replaces its row by `registration` in that epoch, for as long as the lease lives.

    `epoch` and `finalised` are the keys of the epoch and of the metadata version as they were read: no other version
    may be finalised before the broker's range can be seen. `together`: what else is compared and written.

    The new broker epoch raises the leader epoch of every partition that the broker leads, without a write
    (docs/decisions/leader-epochs.md).
    """
    key = broker_epoch_key(broker_id)
    new_epoch = 1 if epoch is None else _number(epoch) + 1
    row = Put(broker_key(broker_id), encode_broker(registration._replace(epoch=new_epoch)), lease)
    same_version = () if finalised is None else (unchanged_since(finalised),)
    commit = StoreTxn(
        (absent(key) if epoch is None else unchanged_since(epoch), *same_version, *together.compares),
        (Put(key, b"%d" % new_epoch), row, *together.operations),
    )
    # No other registration has the incarnation.
    return RegisteredBroker(new_epoch, row, Plan((), commit, happened=(has_value(row.key, row.value),)))


def plan_return(registered: RegisteredBroker, lease: int) -> Plan:
    """Restores the row of a registered broker whose lease ended, under another lease and in the same epoch. The caller
    compares that the epoch is still the broker's."""
    row = registered.row._replace(lease=lease)
    return Plan((), StoreTxn((), (row,)), happened=(has_value(row.key, row.value),))


def plan_end_of_epoch(broker_id: int, epoch: int) -> StoreTxn:
    """Raises the epoch of a broker that stops, and removes its row: no broker is registered in the new epoch."""
    raised = Put(broker_epoch_key(broker_id), b"%d" % (epoch + 1))
    return StoreTxn((authority_of(broker_id, epoch),), (raised, Delete(broker_key(broker_id))))


def plan_controller(broker_id: int, broker_epoch: int, lease: int) -> StoreTxn:
    """Makes a broker the controller if there is none, for as long as its registration lives."""
    row = Put(CONTROLLER, encode_controller(ControllerRow(broker_id, broker_epoch)), lease)
    return StoreTxn((absent(CONTROLLER),), (row,))


def is_controller(controller: ControllerImage) -> Compare:
    """The comparison that holds while this broker is the controller."""
    return Compare(CONTROLLER, Target.CREATE_REVISION, Relation.EQUAL, controller.create_revision)


def plan_lift(item: KeyValue, broker_id: int, guard: Compare) -> StoreTxn:
    """Lifts the fence of a broker, and notes its storage id and address: the broker is a member from then on. `item` is
    the broker's key as it was read."""
    row = decode_broker(item.key, item.value)
    return StoreTxn(
        (unchanged_since(item), guard),
        (
            Put(item.key, encode_broker(row._replace(fenced=False)), item.lease),
            Put(storage_key(broker_id), row.storage_id.encode()),
            Put(member_key(broker_id), encode_member(MemberRow(row.endpoints, row.rack))),
        ),
    )


def condition_of(row: BrokerRow) -> Condition:
    return Condition(row.starting, row.draining, row.disk_full, row.damaged, row.withheld, row.log_ends)


def plan_own_row(item: KeyValue, condition: Condition) -> StoreTxn:
    """Writes the condition of a broker into its row. `item` is its key as read."""
    row = decode_broker(item.key, item.value)._replace(**condition._asdict())
    return StoreTxn((unchanged_since(item),), (Put(item.key, encode_broker(row), item.lease),))


def authority_of(broker_id: int, epoch: int) -> Compare:
    """The comparison that holds until a later incarnation of the broker registers."""
    return has_value(broker_epoch_key(broker_id), b"%d" % epoch)


def plan_producer_ids(block: KeyValue | None, wall_ms: int) -> ProducerIdBlock:
    """Takes the next block of producer ids. `block` is the key as it was read.

    The counter does not show whose block it ends with: after an unknown outcome the caller takes another block.

    An id that is handed out twice loses records: a log takes the second producer's batches for repetitions of the first
    producer's, and acknowledges them unwritten. The counter of a store restored from a backup has gone back, so ids
    also follow the clock.
    """
    first = max(0 if block is None else _number(block), wall_ms * PRODUCER_IDS_PER_MS)
    end = first + PRODUCER_IDS_PER_BLOCK
    compare = absent(PRODUCER_ID_BLOCK) if block is None else unchanged_since(block)
    return ProducerIdBlock(range(first, end), Plan((), StoreTxn((compare,), (Put(PRODUCER_ID_BLOCK, b"%d" % end),))))


def _number(item: KeyValue) -> int:
    try:
        return int(item.value)
    except ValueError:
        raise DamagedMetadata(f"{item.key} does not hold a number: {item.value[:80]!r}") from None

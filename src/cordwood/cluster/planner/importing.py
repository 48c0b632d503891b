"""Plans of an import: the rows of a broker that was alone become the rows of a cluster's first broker.

The first transaction reserves an empty cluster under the id of the import: from then on no broker can name the cluster.
The rows follow, each guarded by the reservation, in any order and as often as needed. The cluster's id is written last
and is the commit point: a cluster without its id has no metadata. The reservation stays, and shows a later run which
import was committed.
"""

from collections.abc import Iterable, Mapping, Sequence

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import (
    BROKER_CONFIGS,
    BROKERS,
    CLUSTER_ID,
    CONTROLLER,
    DEFAULT_BROKER_CONFIG,
    EVIDENCE,
    IMPORT,
    MEMBERS,
    STORAGE_IDS,
    broker_config_key,
    storage_key,
)
from cordwood.cluster.planner.store_transactions import StoreTxn, chunks
from cordwood.cluster.stores.interface import Delete, KeyValue, Put, absent, has_value

_UNDER_LEASES = (BROKERS, EVIDENCE, CONTROLLER)


class CannotImport(Exception):
    """The metadata does not belong to a broker that has all partitions in its own directory."""


def imported_rows(items: Iterable[KeyValue], node_id: int, storage_id: str) -> dict[str, bytes]:
    """The rows of the cluster, without the cluster's id.

    All rows stay as they are, and with them epochs, counters, ids of topics and rows of newer releases. Rows of
    registrations are left out, and rows of single brokers that were workers of the directory once: brokers with the
    same numbers that join the cluster later are others.
    """
    own_rows = {storage_key(node_id), broker_config_key(node_id), DEFAULT_BROKER_CONFIG}
    rows = {
        item.key: item.value
        for item in items
        if not item.key.startswith(_UNDER_LEASES)
        and (item.key in own_rows or not item.key.startswith((STORAGE_IDS, MEMBERS, BROKER_CONFIGS)))
        and item.key not in (CLUSTER_ID, IMPORT)
    }
    rows[storage_key(node_id)] = storage_id.encode()
    return rows


def check_alone(image: ClusterImage, node_id: int) -> None:
    """Raises CannotImport if a partition is not on this broker alone."""
    for topic in image.sorted_topics():
        for index, partition in enumerate(topic.partitions):
            if partition.replicas != (node_id,) or partition.isr != (node_id,):
                raise CannotImport(
                    f"partition {index} of {topic.name} has the replicas {list(partition.replicas)}, in sync "
                    f"{list(partition.isr)}: the records of node {node_id} alone can be imported"
                )


def plan_reservation(import_id: str) -> StoreTxn:
    """Reserves the cluster, unless it has an id or another import has reserved it."""
    return StoreTxn((absent(CLUSTER_ID), absent(IMPORT)), (Put(IMPORT, import_id.encode()),))


def plan_rows(rows: Mapping[str, bytes], import_id: str) -> list[StoreTxn]:
    """Writes the rows, in transactions that can each be repeated until the commit."""
    guards = (has_value(IMPORT, import_id.encode()), absent(CLUSTER_ID))
    return [StoreTxn(guards, group) for group in chunks([Put(key, rows[key]) for key in sorted(rows)])]


def plan_commit(cluster_id: str, import_id: str) -> StoreTxn:
    """Gives the cluster its id: from now on brokers can start."""
    guards = (has_value(IMPORT, import_id.encode()), absent(CLUSTER_ID))
    return StoreTxn(guards, (Put(CLUSTER_ID, cluster_id.encode()),))


def plan_giving_up(keys: Sequence[str], import_id: str) -> list[StoreTxn]:
    """Removes the rows of an import that was not committed, and its reservation last."""
    reserved = has_value(IMPORT, import_id.encode())
    groups = chunks([Delete(key) for key in sorted(keys) if key != IMPORT])
    return [
        *(StoreTxn((reserved, absent(CLUSTER_ID)), group) for group in groups),
        StoreTxn((reserved, absent(CLUSTER_ID)), (Delete(IMPORT),)),
    ]

"""Checks that compacted replicas in sync have the same meaning: for each key the same latest record, with all
deletions.

Each broker compacts by itself, so the logs differ in their bytes. A reader of committed records must not notice.
"""

from cordwood.log.log import Log
from cordwood.node.partitions.partition import Partition
from cordwood.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from cordwood.records.control import read_transaction_marker
from cordwood.records.records import records_in
from simulation.checkers.content import read_batches
from simulation.world.broken import InvariantBroken
from simulation.world.world import World

Latest = dict[bytes, tuple[int, bytes]]
"""Offset and value of the latest committed record of each key that was not deleted."""


def latest_records(log: Log, end: int) -> Latest:
    """The records that a reader of committed records learns from a log up to an offset."""
    latest: Latest = {}
    open_records: dict[int, list[tuple[bytes, int, bytes | None]]] = {}
    for header, batch in read_batches(log):
        if header.base_offset >= end:
            break
        if header.attributes & CONTROL_BIT:
            # A marker without a record is the trace of a producer, and ends nothing.
            marker = read_transaction_marker(batch) if header.record_count else None
            ended = [] if marker is None else open_records.pop(header.producer_id, [])
            if marker is not None and marker.committed:
                _take(latest, ended)
            continue
        found = [(bytes(each.key or b""), each.offset, each.value) for each in records_in(batch)]
        if header.attributes & TRANSACTIONAL_BIT:
            open_records.setdefault(header.producer_id, []).extend(found)
        else:
            _take(latest, found)
    return latest


def _take(latest: Latest, records: list[tuple[bytes, int, bytes | None]]) -> None:
    for key, offset, value in records:
        if offset < latest.get(key, (-1, b""))[0]:
            continue
        if value is None:
            latest.pop(key, None)
        else:
            latest[key] = (offset, bytes(value))


def check_compacted(world: World, topic: str, index: int = 0) -> None:
    """Compares the in-sync replicas of a partition at rest with its leader (rule 15)."""
    replicas: dict[int, Partition] = {}
    for machine in world.machines:
        if machine.life is not None and (found := machine.node.hosted.get(topic, index)) is not None:
            replicas[machine.broker_id] = found
    leader = next(each for each in replicas.values() if each.role.leads)
    expected = latest_records(leader.log, leader.high_watermark)
    for broker_id in leader.image.isr:
        records = latest_records(replicas[broker_id].log, leader.high_watermark)
        if records != expected:
            raise InvariantBroken(
                f"rule 15: broker {broker_id} has {records} of {leader.name}, and the leader has {expected}"
            )

"""Reads what transactions left in their topic, and has the history checker judge it with all that writers were told.

The history checker knows the promises to readers of committed records: whole transactions, nothing aborted, each record
once and in order. Here are the rules that its histories have no words for: positions move with their transactions, and
once all writers are gone no transaction stays open.
"""

from collections.abc import Iterable
from typing import Any

from cordwood.history import check
from cordwood.records.batch import batches_in
from cordwood.records.control import AbortedRecords
from cordwood.records.records import records_in
from cordwood.wire.apis import ApiKey
from simulation.workloads.transactional_writers import PARTITIONS, TOPIC, Attempt
from simulation.world.broken import InvariantBroken
from simulation.world.stage import Stage
from simulation.world.world import World

FETCH_VERSION = 12
OFFSET_FETCH_VERSION = 7


def read_committed(world: World, partition: int) -> tuple[list[tuple[int, bytes]], int, int]:
    """Offsets and values as a read_committed consumer delivers them, the last stable offset, and the high watermark."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while True:
        asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        answer = world.ask_at(
            _leader(world, partition),
            ApiKey.FETCH,
            FETCH_VERSION,
            max_bytes=1 << 20,
            isolation_level=1,
            session_epoch=-1,
            topics=[{"topic": TOPIC, "partitions": [asked]}],
        )
        (part,) = answer.responses[0].partitions
        if part.error_code:
            raise InvariantBroken(f"partition {partition} cannot be read: {part.error_code}")
        next_offset = _deliver(part, found)
        if next_offset is None:
            return found, part.last_stable_offset, part.high_watermark
        offset = next_offset


def committed_values(world: World, partition: int) -> list[bytes]:
    return [value for _, value in read_committed(world, partition)[0]]


def _leader(world: World, partition: int) -> int:
    if len(world.machines) == 1:
        return world.machine.broker_id
    image = max((machine.node.image for machine in world.running), key=lambda image: image.revision)
    return image.leadership(image.topics[TOPIC].partitions[partition]).leader


def _deliver(part: Any, found: list[tuple[int, bytes]]) -> int | None:
    aborted = AbortedRecords((each.producer_id, each.first_offset) for each in part.aborted_transactions or ())
    data = part.records or b""
    next_offset = None
    for position, header in batches_in(data):
        next_offset = header.next_offset
        batch = memoryview(data)[position : position + header.size]
        if not aborted.skips(header, batch) and not header.control:
            found += [(record.offset, record.value or b"") for record in records_in(batch)]
    return next_offset


def check_history(stage: Stage, *, at_the_end: bool) -> set[bytes]:
    """Lets a new reader of committed records read all partitions, and judges the history so far. Returns the values.

    At the end no transaction may be open, so the reader must have got everything that was committed.
    """
    reader = stage.recorder.reader(f"reader-{len(stage.history)}", isolation="read_committed")
    values: set[bytes] = set()
    for partition in range(PARTITIONS):
        found, stable, high_watermark = read_committed(stage.world, partition)
        if at_the_end and stable != high_watermark:
            raise InvariantBroken(f"partition {partition} is stable to {stable} of {high_watermark}: something is open")
        reader.positioned(TOPIC, partition, 0)
        reader.polled(TOPIC, partition, found)
        if at_the_end:
            reader.drained(TOPIC, partition)
        values.update(value for _, value in found)
    report = check(stage.history)
    if not report.clean:
        raise InvariantBroken(report.render())
    return values


def check_transactions(stage: Stage, attempts: Iterable[Attempt], *, at_the_end: bool) -> None:
    seen = {int(value.split(b":")[0]) for value in check_history(stage, at_the_end=at_the_end)}
    if at_the_end:
        _check_positions(stage.world, attempts, seen)


def _check_positions(world: World, attempts: Iterable[Attempt], seen: set[int]) -> None:
    moved: dict[str, int] = {}
    for attempt in attempts:
        moved.setdefault(attempt.transactional_id, -1)
        if attempt.moved_position and attempt.number in seen:
            moved[attempt.transactional_id] = attempt.number
    for transactional_id, wanted in sorted(moved.items()):
        broker_id = world.machines[0].broker_id
        if len(world.machines) > 1:
            broker_id = world.ask_at(broker_id, ApiKey.FIND_COORDINATOR, 3, key=transactional_id, key_type=0).node_id
        answer = world.ask_at(
            broker_id,
            ApiKey.OFFSET_FETCH,
            OFFSET_FETCH_VERSION,
            group_id=transactional_id,
            topics=[{"name": TOPIC, "partition_indexes": [0]}],
            require_stable=True,
        )
        (found,) = answer.topics[0].partitions
        if found.error_code or found.committed_offset != wanted:
            raise InvariantBroken(
                f"position of {transactional_id}: {found.committed_offset}, error {found.error_code}, not {wanted}"
            )

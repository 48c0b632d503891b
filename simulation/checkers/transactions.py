"""Checks that read_committed readers see whole transactions or none of their records, nothing aborted, in order."""

from collections import defaultdict
from typing import Any

from cordwood.records.batch import batches_in
from cordwood.records.control import read_transaction_marker
from cordwood.records.records import records_in
from cordwood.wire.apis import ApiKey
from simulation.workloads.transactional_writers import PARTITIONS, TOPIC, Attempt, Fate, History
from simulation.world.broken import InvariantBroken
from simulation.world.world import World

FETCH_VERSION = 12
OFFSET_FETCH_VERSION = 7


def read_committed(world: World, partition: int) -> tuple[list[bytes], int, int]:
    """Values as a read_committed consumer delivers them, the last stable offset, and the high watermark."""
    values: list[bytes] = []
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
        next_offset = _deliver(part, values)
        if next_offset is None:
            return values, part.last_stable_offset, part.high_watermark
        offset = next_offset


def _leader(world: World, partition: int) -> int:
    if len(world.machines) == 1:
        return world.machine.broker_id
    image = max((machine.node.image for machine in world.running), key=lambda image: image.revision)
    return image.leadership(image.topics[TOPIC].partitions[partition]).leader


def _deliver(part: Any, values: list[bytes]) -> int | None:
    coming = sorted((each.first_offset, each.producer_id) for each in part.aborted_transactions or ())
    aborted: set[int] = set()
    data = part.records or b""
    next_offset = None
    for position, header in batches_in(data):
        next_offset = header.next_offset
        batch = memoryview(data)[position : position + header.size]
        while coming and coming[0][0] <= header.last_offset:
            aborted.add(coming.pop(0)[1])
        if header.control:
            marker = read_transaction_marker(batch) if header.record_count else None
            if marker is not None and not marker.committed:
                aborted.discard(header.producer_id)
        elif not (header.transactional and header.producer_id in aborted):
            values += [record.value or b"" for record in records_in(batch)]
    return next_offset


def check_transactions(world: World, history: History, *, at_the_end: bool) -> None:
    seen: dict[int, list[bytes]] = defaultdict(list)
    for partition in range(PARTITIONS):
        values, stable, high_watermark = read_committed(world, partition)
        if at_the_end and stable != high_watermark:
            raise InvariantBroken(f"partition {partition} is stable to {stable} of {high_watermark}: something is open")
        if len(values) != len(set(values)):
            raise InvariantBroken(f"partition {partition} has records twice: {values}")
        places: dict[int, int] = {}
        for value in values:
            number, written_to, place = map(int, value.split(b":"))
            if written_to != partition or place <= places.get(number, -1):
                raise InvariantBroken(f"{value!r} is out of order or in the wrong partition, {partition}: {values}")
            places[number] = place
            seen[number].append(value)
    for attempt in history.attempts:
        _check_attempt(attempt, seen.get(attempt.number, []), at_the_end)
    if at_the_end:
        _check_positions(world, history, seen)


def _check_attempt(attempt: Attempt, seen: list[bytes], at_the_end: bool) -> None:
    what = f"transaction {attempt.number} of {attempt.transactional_id} ({attempt.fate.value})"
    if seen and attempt.fate in (Fate.OPEN, Fate.ABORTED):
        raise InvariantBroken(f"{what}: readers see {seen}")
    if seen and sorted(seen) != sorted(attempt.written) and at_the_end:
        raise InvariantBroken(f"{what} is torn: it wrote {attempt.written}, readers see {seen}")
    if not seen and attempt.fate is Fate.COMMITTED and at_the_end:
        raise InvariantBroken(f"{what}: readers see nothing of {attempt.written}")


def _check_positions(world: World, history: History, seen: dict[int, list[bytes]]) -> None:
    for transactional_id in sorted({attempt.transactional_id for attempt in history.attempts}):
        wanted = max(
            (
                attempt.number
                for attempt in history.attempts
                if attempt.transactional_id == transactional_id and attempt.moved_position and seen.get(attempt.number)
            ),
            default=-1,
        )
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

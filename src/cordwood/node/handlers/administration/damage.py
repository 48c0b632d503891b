"""Damage on this broker's disk, two APIs of our own: DamageList lists the damage that the broker knows of. SoundBatches
gives checked batches to another replica, which repairs its damage with them (`node/replication/repair.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordwood.log.directory.findings import Finding
from cordwood.model.errors import DamagedLog, ErrorCode, ProtocolError, StorageFailure
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.requests.brokers_only import check_broker
from cordwood.node.requests.request import Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.damage_book import DamageBook
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.replication.repair import Repair
    from cordwood.wire.message_types.damage_list import DamageList
    from cordwood.wire.message_types.sound_batches import SoundBatches


NEVER = -1


class DamageRooms(Protocol):
    """The rooms of a node that these handlers need."""

    damage: DamageBook
    hosted: HostedReplicas
    image: ClusterImage
    loop: Loop
    repair: Repair
    reports: Reports


def damage_list(rooms: DamageRooms, request: Request[DamageList]) -> None:
    """Lists the damage in these topics (null: in all). The number of kept findings is bounded."""
    wanted = request.decode().topics
    topics = None if wanted is None else set(wanted)
    findings, judge = rooms.damage.findings, request.judge

    def is_told(topic: str) -> bool:
        return (topics is None or topic in topics) and judge.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic)

    request.answer(
        error_code=ErrorCode.NONE,
        findings=[
            _described(finding, rooms.repair.why_not(finding))
            for finding in rooms.damage.known()
            if is_told(finding.partition.topic)
        ],
        findings_not_kept=findings.not_kept,
        pass_began_ms=NEVER if findings.pass_began_ms is None else findings.pass_began_ms,
        last_pass_ended_ms=NEVER if findings.last_pass_ended_ms is None else findings.last_pass_ended_ms,
        repairs=[
            {
                "topic": repaired.partition.topic,
                "partition": repaired.partition.partition,
                "first_offset": repaired.first_offset,
                "end_offset": repaired.end_offset,
                "broker_ids": repaired.broker_ids,
                "repaired_ms": repaired.repaired_ms,
            }
            for repaired in findings.repairs
            if is_told(repaired.partition.topic)
        ],
    )


def _described(finding: Finding, not_repaired: str) -> DamageList.AnswerFinding:
    return {
        "topic": finding.partition.topic,
        "partition": finding.partition.partition,
        "file": finding.file,
        "position": finding.position,
        "first_offset": finding.first_offset,
        "end_offset": finding.end_offset,
        "reason": finding.reason,
        "found_ms": finding.found_ms,
        "not_repaired": not_repaired,
    }


def sound_batches(rooms: DamageRooms, request: Request[SoundBatches]) -> None:
    """Gives checked batches to another replica, from this broker's log, whoever leads. Newly found damage is noted."""
    asked = request.decode()
    try:
        check_broker(rooms.image, request, asked.broker_id, asked.broker_epoch)
        partition = rooms.hosted.replica_for(asked.topic_id, asked.partition, asked.broker_id)
        log = partition.log
        if not log.replayed.ready:
            log.replayed.make_ready()
    except ProtocolError as refusal:
        request.answer(error_code=refusal.code)
        return
    except StorageFailure as failure:
        rooms.reports.failure(failure)
        request.answer(error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        return
    end_offset, truncations = min(asked.end_offset, partition.high_watermark), log.offsets.truncations
    if not log.offsets.start <= asked.first_offset < end_offset:
        request.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        return
    request.let_go_of_frame()
    max_bytes = min(max(asked.max_bytes, 0), rooms.image.settings.replica_fetch_max_bytes)

    def found(result: bytes | Exception) -> None:
        rooms.damage.look_at(log)
        if partition.role.being_cut or truncations != log.offsets.truncations or not rooms.hosted.hosts(partition):
            request.answer(error_code=ErrorCode.KAFKA_STORAGE_ERROR)  # the log changed under the reader
        elif isinstance(result, DamagedLog):
            rooms.reports.failure(result)
            request.answer(error_code=ErrorCode.CORRUPT_MESSAGE)
        elif isinstance(result, Exception):
            rooms.reports.failure(result)
            request.answer(error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            request.answer(error_code=ErrorCode.NONE, batches=result)

    rooms.loop.effects.for_client(
        request.reply.connection_id, lambda: log.read_sound(asked.first_offset, end_offset, max_bytes), found
    )


HANDLERS = (serves(ApiKey.DAMAGE_LIST, 0, 1, damage_list), serves(ApiKey.SOUND_BATCHES, 0, 0, sound_batches))

"""DamageList, an API of our own: the damage on this broker's disk that the broker knows of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordwood.log.directory.findings import Finding
from cordwood.model.errors import ErrorCode
from cordwood.node.request import Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.node.duties.damage_book import DamageBook
    from cordwood.wire.message_types.damage_list import DamageList


NEVER = -1


class DamageRooms(Protocol):
    """The rooms of a node that these handlers need."""

    damage: DamageBook


def damage_list(rooms: DamageRooms, request: Request[DamageList]) -> None:
    """Lists the damage in these topics (null: in all). The number of kept findings is bounded."""
    wanted = request.decode().topics
    topics = None if wanted is None else set(wanted)
    findings = rooms.damage.findings
    request.answer(
        error_code=ErrorCode.NONE,
        findings=[
            _described(finding)
            for finding in rooms.damage.known()
            if topics is None or finding.partition.topic in topics
        ],
        findings_not_kept=findings.not_kept,
        pass_began_ms=NEVER if findings.pass_began_ms is None else findings.pass_began_ms,
        last_pass_ended_ms=NEVER if findings.last_pass_ended_ms is None else findings.last_pass_ended_ms,
    )


def _described(finding: Finding) -> DamageList.AnswerFinding:
    return {
        "topic": finding.partition.topic,
        "partition": finding.partition.partition,
        "file": finding.file,
        "position": finding.position,
        "first_offset": finding.first_offset,
        "end_offset": finding.end_offset,
        "reason": finding.reason,
        "found_ms": finding.found_ms,
    }


HANDLERS = (serves(ApiKey.DAMAGE_LIST, 0, 0, damage_list),)

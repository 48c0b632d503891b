"""The answer to a fetch whose partitions have all been looked at: in a session only those with news."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from cordwood.log.reading.lookup import LogSlice
from cordwood.model.identifiers import TopicId
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.fetch_sessions import FetchPlan, Mode, Target
from cordwood.node.requests.request import Request
from cordwood.wire.fetched import FetchedPartition, encode_fetch_in_steps, encode_fetch_response

if TYPE_CHECKING:
    from cordwood.node.loop.loop import Loop
    from cordwood.node.requests.leader_hints import LeaderHints
    from cordwood.wire.endpoints import NodeEndpoint

PARTITIONS_PER_STEP = 100
"""To read a partition takes some ten microseconds, and more if its log has to be opened. A fetch of more partitions is
read and answered in steps."""
TARGETS_PER_STEP = 1_000

Topics = dict[str | TopicId, list[FetchedPartition]]


class AnsweringRooms(Protocol):
    """The rooms of a node that the answer to a fetch needs."""

    leader_hints: LeaderHints
    loop: Loop


def answer_fetch(rooms: AnsweringRooms, request: Request, plan: FetchPlan, found: list[FetchedPartition]) -> None:
    """Answers with the findings of each target of the plan, now or in steps."""
    if request.reply.session.is_over(rooms.loop.now.boot_ms):
        # The request came before the end of the session, and nobody reads after it.
        found = [each.without_records() for each in found]
    if len(found) > PARTITIONS_PER_STEP:
        rooms.loop.turns.begin(request.reply, _answer_in_steps(rooms, request, plan, found))
        return
    header = request.header
    topics: Topics = {}
    _tell(plan, plan.targets, found, topics)
    frame = encode_fetch_response(
        header.api_version,
        header.correlation_id,
        list(topics.items()),
        session_id=plan.session_id,
        node_endpoints=_leaders_told(rooms, request, found),
    )
    request.send(frame)  # type: ignore[arg-type]


def _answer_in_steps(rooms: AnsweringRooms, request: Request, plan: FetchPlan, found: list[FetchedPartition]) -> Steps:
    header = request.header
    topics: Topics = {}
    for start in range(0, len(found), TARGETS_PER_STEP):
        end = start + TARGETS_PER_STEP
        _tell(plan, plan.targets[start:end], found[start:end], topics)
        yield
    frame = yield from encode_fetch_in_steps(
        header.api_version,
        header.correlation_id,
        list(topics.items()),
        session_id=plan.session_id,
        node_endpoints=_leaders_told(rooms, request, found),
    )
    request.send(frame)  # type: ignore[arg-type]


def _leaders_told(rooms: AnsweringRooms, request: Request, found: list[FetchedPartition]) -> Sequence[NodeEndpoint]:
    hinted = [each.current_leader for each in found if each.current_leader is not None]
    return rooms.leader_hints.endpoints(hinted, request.reply.session.entrance.name) if hinted else ()


def _tell(plan: FetchPlan, targets: list[Target], found_in_each: list[FetchedPartition], topics: Topics) -> None:
    """Adds the partitions with news to the answer."""
    session = plan.session
    for target, found in zip(targets, found_in_each, strict=True):
        has_records = isinstance(found.records, LogSlice)
        if session is not None:
            news = (
                has_records
                or found.error_code
                or found.diverging_epoch is not None
                or found.preferred_read_replica >= 0
                or found.current_leader is not None
                or found.high_watermark != target.sent_high_watermark
                or found.log_start_offset != target.sent_log_start
            )
            if plan.mode is Mode.INCREMENTAL and not news:
                continue
            # An error's -1 is remembered too, so that the recovery from it is news.
            target.sent_high_watermark = found.high_watermark
            target.sent_log_start = found.log_start_offset
            if has_records:
                session.served(target.key)
        topics.setdefault(target.topic, []).append(found)

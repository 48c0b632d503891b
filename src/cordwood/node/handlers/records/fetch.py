"""Fetch: chooses the partitions that a request reads. `Fetching` reads them, and answers.

A follower fetches at the listener between brokers, without a session. Its fetch offset is the end that counts for the
high watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordwood.model.errors import ProtocolError
from cordwood.node.handlers.records.fetch_answers import PARTITIONS_PER_STEP, TARGETS_PER_STEP
from cordwood.node.handlers.records.fetching import Fetching, FetchingRooms
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.brokers_only import check_broker
from cordwood.node.requests.fetch_sessions import FetchPlan, Mode, Target, TargetKey, targets_of
from cordwood.node.requests.request import Request, serves
from cordwood.wire.apis import ApiKey
from cordwood.wire.fetch import TOPIC_IDS_FROM, FetchRequest, decode_fetch, decode_fetch_in_steps
from cordwood.wire.fetched import encode_fetch_response

if TYPE_CHECKING:
    from cordwood.node.quotas.client_quotas import ClientQuotas
    from cordwood.node.requests.fetch_sessions import FetchSessions

NARROW_BYTES = 4096
"""A request of at most this many bytes names at most some hundred partitions."""


class FetchRooms(FetchingRooms, Protocol):
    """The rooms of a node that these handlers need."""

    fetch_sessions: FetchSessions
    quotas: ClientQuotas


def fetch(rooms: FetchRooms, request: Request) -> Steps | None:
    if len(request.frame) > NARROW_BYTES:
        return _fetch_in_steps(rooms, request)
    body = decode_fetch(request.header, request.frame)
    targets: list[Target] = []
    for topic, partitions in body.topics:
        targets += targets_of(topic, partitions)
    plan = _plan(rooms, request, body, targets)
    if plan is None:
        return None
    fetching = Fetching(rooms, request, body, plan, _most_bytes(rooms, request))
    if len(plan.targets) > PARTITIONS_PER_STEP:
        return fetching.start_in_steps()
    fetching.start()
    return None


def _fetch_in_steps(rooms: FetchRooms, request: Request) -> Steps:
    """Handles a fetch that names many partitions."""
    body = yield from decode_fetch_in_steps(request.header, bytes(request.frame))
    named: dict[TargetKey, Target] = {}
    left = TARGETS_PER_STEP
    for topic, partitions in body.topics:
        left -= 1
        for start in range(0, len(partitions), TARGETS_PER_STEP):
            some = partitions[start : start + TARGETS_PER_STEP]
            # A partition that is named more than once is read once, as its last entry says, as in Kafka.
            named |= {(topic, target.partition): target for target in targets_of(topic, some)}
            left -= len(some)
            if left <= 0:
                left = TARGETS_PER_STEP
                yield
    plan = _plan(rooms, request, body, list(named.values()))
    if plan is not None:
        yield
        yield from Fetching(rooms, request, body, plan, _most_bytes(rooms, request)).start_in_steps()


def _plan(rooms: FetchRooms, request: Request, body: FetchRequest, targets: list[Target]) -> FetchPlan | None:
    """Plans which partitions the fetch reads; None if the whole request was refused."""
    header = request.header
    try:
        if body.replica_id >= 0:
            check_broker(rooms.image, request, body.replica_id, body.replica_epoch)
            return FetchPlan(targets, Mode.FULL, None)
        return rooms.fetch_sessions.resolve(
            body.session_id,
            body.session_epoch,
            targets,
            [(topic, index) for topic, indexes in body.forgotten for index in indexes] if body.forgotten else (),
            header.api_version >= TOPIC_IDS_FROM,
            request.now.boot_ms,
            request.reply.connection_id,
            request.reply.session.principal,
        )
    except ProtocolError as refusal:
        frame = encode_fetch_response(header.api_version, header.correlation_id, (), error_code=refusal.code)
        request.send(frame)  # type: ignore[arg-type]
        return None


def _most_bytes(rooms: FetchRooms, request: Request) -> int:
    """The most bytes of records for one answer to this client: records that are never read cost nothing."""
    quotas, most_bytes = rooms.quotas, rooms.image.settings.fetch_max_bytes
    return min(most_bytes, quotas.most_bytes(request.header, request.reply.session)) if quotas.on else most_bytes


HANDLERS = (serves(ApiKey.FETCH, 4, 18, fetch),)

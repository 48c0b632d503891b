"""ElectLeaders: gives partitions their first replicas as leaders, or any live replica where an operator accepts a loss.

Any broker makes these elections itself: each is one transaction that compares the values on which it was decided.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.outcomes import each_outcome, status
from cordwood.node.requests.request import Made, Request, by_topic, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.cluster.metadata_writer import MetadataWriter
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.wire.message_types.elect_leaders import ElectLeaders

PREFERRED, UNCLEAN = 0, 1
ANY_LEADER = -1
GATHERED_PER_STEP = 1000
"""Partitions or results in one step."""


class ElectionRooms(Protocol):
    """The rooms of a node that these handlers need."""

    image: ClusterImage
    loop: Loop
    reports: Reports


def elect_leaders(rooms: ElectionRooms, request: Request[ElectLeaders]) -> Steps:
    """Elects the leaders of these partitions (null: of all). Version 0 has only preferred elections."""
    body = yield from request.read()
    kind = body.election_type if request.version else PREFERRED
    if kind not in (PREFERRED, UNCLEAN):
        request.answer(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=())
        return
    refusal = request.judge.refusal(Operation.ALTER, ResourceKind.CLUSTER)
    if refusal is not None:
        _refuse(request, body, refusal)
        return
    everywhere = body.topic_partitions is None
    partitions: list[tuple[str, int]] = []
    if body.topic_partitions is None:
        for topic in list(rooms.image.sorted_topics()):
            before = len(partitions) // GATHERED_PER_STEP
            partitions += [(topic.name, index) for index in range(len(topic.partitions))]
            if len(partitions) // GATHERED_PER_STEP > before:
                yield
    else:
        asked = ((topic.topic, index) for topic in body.topic_partitions for index in topic.partitions)
        partitions += dict.fromkeys(asked)
    leader = None if body.leader == ANY_LEADER else body.leader
    begin_anew = body.begin_anew

    def elected(outcomes: dict[tuple[str, int], int | ProtocolError] | Exception) -> None:
        request.go_on(_answer(rooms.reports, request, outcomes, partitions, everywhere))

    def elections(writer: MetadataWriter) -> Awaitable[dict[tuple[str, int], int | ProtocolError]]:
        if kind == PREFERRED:
            return writer.elect_preferred(partitions)
        if begin_anew and leader is not None:
            return writer.begin_anew(partitions, leader)
        return writer.accept_losses(partitions, leader)

    rooms.loop.effects.metadata(elections, elected)


def _refuse(request: Request[ElectLeaders], body: ElectLeaders.Request, refusal: ProtocolError) -> None:
    """Refuses the request as a whole, and, for clients of version 0, each partition that it names."""
    request.answer(
        error_code=refusal.code,
        replica_election_results=[
            {
                "topic": topic.topic,
                "partition_result": [{"partition_id": index, **status(refusal)} for index in topic.partitions],
            }
            for topic in body.topic_partitions or ()
        ],
    )


def _answer(
    reports: Reports,
    request: Request[ElectLeaders],
    outcomes: dict[tuple[str, int], int | ProtocolError] | Exception,
    partitions: list[tuple[str, int]],
    everywhere: bool,
) -> Steps:
    results: list[tuple[str, ElectLeaders.AnswerPartitionResult]] = []
    for place, ((topic, index), outcome) in enumerate(each_outcome(reports, outcomes, partitions), 1):
        needless = isinstance(outcome, ProtocolError) and outcome.code is ErrorCode.ELECTION_NOT_NEEDED
        # A request for all partitions is answered with those that had an election to make.
        if not (everywhere and needless):
            results.append((topic, {"partition_id": index, **status(outcome)}))
        if not place % GATHERED_PER_STEP:
            yield
    request.answer(
        error_code=ErrorCode.NONE,
        replica_election_results=Made(by_topic(results), lambda each: {"topic": each[0], "partition_result": each[1]}),
    )


HANDLERS = (serves(ApiKey.ELECT_LEADERS, 0, 2, elect_leaders),)

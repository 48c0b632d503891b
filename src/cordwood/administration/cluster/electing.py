"""Leader elections (ElectLeaders) for commands."""

from collections.abc import Sequence
from typing import NamedTuple

from cordwood.administration.asking import ask
from cordwood.client.settings import Address
from cordwood.model.errors import code_name
from cordwood.model.failure import Failure
from cordwood.wire.apis import ApiKey

PREFERRED, UNCLEAN = 0, 1
_ANY_LEADER = -1
NOT_NEEDED = "ELECTION_NOT_NEEDED"


class Elected(NamedTuple):
    """The outcome for one partition. `error` is empty if the partition has a new leader."""

    topic: str
    partition: int
    error: str
    message: str


def elect(
    address: Address,
    kind: int,
    partitions: Sequence[tuple[str, int]] | None,
    timeout_s: float,
    leader: int = _ANY_LEADER,
    *,
    begin_anew: bool = False,
) -> list[Elected]:
    """Elects leaders, in all partitions if `partitions` is None. Raises Failure if no partition was tried."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions or ():
        topics.setdefault(topic, []).append(index)
    values = {
        "election_type": kind,
        "topic_partitions": None
        if partitions is None
        else [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
        "timeout_ms": int(timeout_s * 1000),
        "leader": leader,
        "begin_anew": begin_anew,
    }
    answer = ask(address, ApiKey.ELECT_LEADERS, 2, values, timeout_s)
    if answer.error_code:
        raise Failure(code_name(answer.error_code), "the broker refuses the election")
    return [
        Elected(
            result.topic,
            each.partition_id,
            code_name(each.error_code) if each.error_code else "",
            each.error_message or "",
        )
        for result in answer.replica_election_results
        for each in result.partition_result
    ]

"""The partitions of a transaction: a partition is added before its first record, and verified at each write."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from cordwood.model.errors import ErrorCode
from cordwood.model.families import is_reserved
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicId, TopicPartition
from cordwood.transactions.transaction import LAST_CLIENT_EPOCH, PREPARED, State, Step, Transaction

TopicIds = Mapping[str, TopicId]
"""The present ids of topics, by name. A topic whose id is not known is taken by its name."""
NO_IDS: TopicIds = MappingProxyType({})


def owner_problem(found: Transaction | None, producer_id: int, producer_epoch: int) -> ErrorCode:
    """Why this producer cannot take part in this id's transaction now; NONE if it can."""
    if found is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if found.state in PREPARED:
        # The client may already use the producer id that it gets when this transaction is complete.
        if producer_id not in (found.producer_id, found.next_producer_id):
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer_id == found.producer_id and producer_epoch != found.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if producer_id != found.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer_epoch != found.producer_epoch or producer_epoch > LAST_CLIENT_EPOCH:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def add_partitions(
    found: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[TopicPartition],
    *,
    client_version: int,
    wall_ms: int,
    max_partitions: int,
    topic_ids: TopicIds = NO_IDS,
) -> Step:
    """Adds partitions to the open transaction; the first partitions open it."""
    problem = owner_problem(found, producer_id, producer_epoch)
    if problem is not ErrorCode.NONE:
        return Step(problem)
    assert found is not None
    ongoing = found.state is State.ONGOING
    if is_reserved(found.transactional_id) and found.state not in (State.EMPTY, State.ONGOING):
        # A slot that has ended is opened again by joining it only.
        return Step(ErrorCode.PRODUCER_FENCED)
    ids = dict(found.topic_ids) if ongoing else {}
    ids.update((topic, topic_ids[topic]) for topic in {each.topic for each in partitions} if topic in topic_ids)
    known_ids = tuple(sorted(ids.items()))
    if ongoing and found.partitions.issuperset(partitions) and known_ids == found.topic_ids:
        return Step()
    together = found.partitions.union(partitions) if ongoing else frozenset(partitions)
    # Each addition writes the whole set anew, so its size is bounded. Partitions of positions are few, and come last.
    if len(together) > max_partitions and not all(each.topic in INTERNAL_TOPICS for each in partitions):
        return Step(ErrorCode.POLICY_VIOLATION)
    return Step(
        ErrorCode.NONE,
        replace(
            found,
            state=found.moved_to(State.ONGOING),
            partitions=together,
            topic_ids=known_ids,
            started_ms=found.started_ms if ongoing else wall_ms,
            updated_ms=wall_ms,
            client_version=client_version,
        ),
    )


def verify_partitions(
    found: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
    topic_ids: TopicIds = NO_IDS,
) -> dict[TopicPartition, ErrorCode]:
    """Checks each partition against the producer's open transaction: TRANSACTION_ABORTABLE if it is not part of it."""
    problem = owner_problem(found, producer_id, producer_epoch)
    if problem is not ErrorCode.NONE:
        return dict.fromkeys(partitions, problem)
    assert found is not None
    included = found.partitions if found.state is State.ONGOING else frozenset()
    gone = {topic for topic, topic_id in found.topic_ids if topic_ids.get(topic, topic_id) != topic_id}
    return {
        partition: ErrorCode.NONE
        if partition in included and partition.topic not in gone
        else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }

"""What the answers to judged clients claim about the rights of their principals."""

from collections.abc import Callable, Iterator

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId
from cordwood.model.operations import Operation, ResourceKind
from cordwood.wire.apis import ApiKey
from simulation.checkers.rights import Claim
from simulation.workloads.judged_clients import CLASSIC, CONSUMERS, POSITIONS
from simulation.world.exchange import Exchange

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC, GROUP, TRANSACTION = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.TRANSACTIONAL_ID


def claims_of(exchange: Exchange, name_of: Callable[[TopicId], str | None]) -> Iterator[Claim]:
    """What an answer gives its principal, and what it refuses."""
    answer = exchange.answer
    match exchange.key:
        case ApiKey.PRODUCE:
            for topic in answer.responses:
                yield from _claim(topic.partition_responses[0].error_code, WRITE, TOPIC, topic.name)
        case ApiKey.FETCH if exchange.version >= 15:
            records = any(part.records for topic in answer.responses for part in topic.partitions)
            if records:
                yield Claim(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, "kafka-cluster", given=True)
        case ApiKey.FETCH:
            for topic in answer.responses:
                for part in topic.partitions:
                    yield from _claim(part.error_code, READ, TOPIC, topic.topic, leaving=True)
        case ApiKey.OFFSET_COMMIT:
            for topic in answer.topics:
                code = topic.partitions[0].error_code
                yield from _claim(code, READ, GROUP, POSITIONS)
                yield from _claim(code, READ, TOPIC, topic.name)
        case ApiKey.OFFSET_FETCH:
            yield from _claim(answer.error_code, DESCRIBE, GROUP, POSITIONS, leaving=True)
            for topic in answer.topics:
                yield from _claim(topic.partitions[0].error_code, DESCRIBE, TOPIC, topic.name, leaving=True)
        case ApiKey.METADATA:
            for topic in answer.topics:
                yield Claim(DESCRIBE, TOPIC, topic.name, given=True, leaving=True)
        case ApiKey.CONSUMER_GROUP_HEARTBEAT:
            yield from _claim(answer.error_code, READ, GROUP, CONSUMERS, leaving=True)
            if answer.assignment is not None:
                for each in answer.assignment.topic_partitions:
                    yield Claim(DESCRIBE, TOPIC, name_of(each.topic_id) or "", given=True, leaving=True)
        case ApiKey.JOIN_GROUP:
            yield from _claim(answer.error_code, READ, GROUP, CLASSIC, leaving=True)
        case ApiKey.INIT_PRODUCER_ID:
            yield from _claim(answer.error_code, WRITE, TRANSACTION, _transaction(exchange))
        case ApiKey.ADD_PARTITIONS_TO_TXN:
            for topic in answer.results_by_topic_v3_and_below:
                code = topic.results_by_partition[0].partition_error_code
                yield from _claim(code, WRITE, TRANSACTION, _transaction(exchange))
                yield from _claim(code, WRITE, TOPIC, topic.name)


def _transaction(exchange: Exchange) -> str:
    name = exchange.values.get("transactional_id", exchange.values.get("v3_and_below_transactional_id"))
    return str(name)


def _claim(code: int, operation: Operation, kind: ResourceKind, name: str, *, leaving: bool = False) -> Iterator[Claim]:
    """Success claims the right, its own refusal the lack of it, and other errors nothing."""
    if code in (ErrorCode.NONE, kind.refusal):
        yield Claim(operation, kind, name, code == ErrorCode.NONE, leaving)

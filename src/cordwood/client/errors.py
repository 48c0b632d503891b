"""Errors between a client and its cluster. Every message names the broker or partition and the request.

The client retries inside; an error that reaches the caller is final, or its time is up.
"""

from typing import Final, NamedTuple

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.model.operations import Operation, ResourceKind
from cordwood.wire.apis import ApiKey


class ClientError(Exception):
    """A call did not succeed."""


class BrokerUnreachable(ClientError):
    """No connection, a broken connection, or no answer in time."""


class SecurityFailure(ClientError):
    """The client does not trust the broker, or the broker not the client: a certificate, a log-in, or a setting of
    theirs is wrong. Another attempt would end alike, and the message holds no secret."""


class LogInFailure(SecurityFailure):
    """The log-in failed. TLS, if the settings ask for it, did not."""


class RequestRefused(ClientError):
    """A broker understood the request and answered with an error code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type["RequestRefused"], tuple[ErrorCode, str]]:
        return type(self), (self.code, str(self))


class UnknownTopic(ClientError):
    """The topic or partition does not exist (any more)."""

    def __init__(self, topic: str, message: str) -> None:
        super().__init__(message)
        self.topic = topic

    def __reduce__(self) -> tuple[type["UnknownTopic"], tuple[str, str]]:
        return type(self), (self.topic, str(self))


class OffsetOutOfRange(ClientError):
    """The partition does not have the requested offset. Unknown bounds are -1."""

    def __init__(self, partition: TopicPartition, asked: int, log_start_offset: int, log_end_offset: int) -> None:
        if 0 <= asked < log_start_offset:
            reason = f"everything below offset {log_start_offset} has been removed (retention, or records deleted)"
        elif log_end_offset >= 0:
            reason = f"the partition ends at {log_end_offset}: it was truncated, or another topic has its name"
        else:
            reason = "the partition has no such offset"
        if log_start_offset < 0:
            has = ""
        elif log_start_offset < log_end_offset:
            has = f" It has the offsets from {log_start_offset} to {log_end_offset - 1}."
        else:
            has = f" It is empty now, and goes on at offset {log_end_offset}."
        super().__init__(f"Offset {asked} of {partition} cannot be read: {reason}.{has}")
        self.partition = partition
        self.asked = asked
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

    def __reduce__(self) -> tuple[type["OffsetOutOfRange"], tuple[TopicPartition, int, int, int]]:
        return type(self), (self.partition, self.asked, self.log_start_offset, self.log_end_offset)


class DamagedRecords(ClientError):
    """The broker refuses a read at this offset: the records on its disk are damaged there."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"{partition} is damaged from offset {offset} on: what the broker has on disk there is not what was "
            f"written. `cordwood topic describe {partition.topic}` says up to where; the records behind it can be read."
        )
        self.partition = partition
        self.offset = offset

    def __reduce__(self) -> tuple[type["DamagedRecords"], tuple[TopicPartition, int]]:
        return type(self), (self.partition, self.offset)


class EndNotReached(ClientError):
    """The end of a range did not become readable in time. Either the log ends below `asked`, or an open transaction
    holds readers back, or the broker sends no records."""

    def __init__(self, partition: TopicPartition, reached: int, asked: int, log_end_offset: int, message: str) -> None:
        super().__init__(message)
        self.partition = partition
        self.reached = reached
        self.asked = asked
        self.log_end_offset = log_end_offset

    def __reduce__(self) -> tuple[type["EndNotReached"], tuple[TopicPartition, int, int, int, str]]:
        return type(self), (self.partition, self.reached, self.asked, self.log_end_offset, str(self))


class VersionMismatch(ClientError):
    """The broker lacks an API, or this client speaks none of the broker's versions of it."""


def error_code(code: int) -> ErrorCode:
    """The error code for a number; numbers of newer brokers count as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


RIGHTS: Final[dict[ErrorCode, dict[ApiKey, Operation]]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: {
        ApiKey.METADATA: Operation.DESCRIBE,
        ApiKey.LIST_OFFSETS: Operation.DESCRIBE,
        ApiKey.OFFSET_FETCH: Operation.DESCRIBE,
        ApiKey.DESCRIBE_CONFIGS: Operation.DESCRIBE_CONFIGS,
        ApiKey.FETCH: Operation.READ,
        ApiKey.OFFSET_COMMIT: Operation.READ,
        ApiKey.TXN_OFFSET_COMMIT: Operation.READ,
        ApiKey.PRODUCE: Operation.WRITE,
    },
    ErrorCode.GROUP_AUTHORIZATION_FAILED: {
        ApiKey.FIND_COORDINATOR: Operation.DESCRIBE,
        ApiKey.OFFSET_FETCH: Operation.DESCRIBE,
        ApiKey.OFFSET_COMMIT: Operation.READ,
        ApiKey.TXN_OFFSET_COMMIT: Operation.READ,
        ApiKey.ADD_OFFSETS_TO_TXN: Operation.READ,
        ApiKey.DELETE_GROUPS: Operation.DELETE,
    },
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: {
        ApiKey.FIND_COORDINATOR: Operation.DESCRIBE,
        ApiKey.INIT_PRODUCER_ID: Operation.WRITE,
        ApiKey.PRODUCE: Operation.WRITE,
        ApiKey.ADD_OFFSETS_TO_TXN: Operation.WRITE,
        ApiKey.TXN_OFFSET_COMMIT: Operation.WRITE,
        ApiKey.END_TXN: Operation.WRITE,
        ApiKey.FAMILY_JOIN: Operation.WRITE,
        ApiKey.FAMILY_RENEW: Operation.WRITE,
        ApiKey.FAMILY_DECIDE: Operation.WRITE,
        ApiKey.FAMILY_RECALL: Operation.DESCRIBE,
    },
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: {
        ApiKey.CREATE_DELEGATION_TOKEN: Operation.CREATE_TOKENS,
    },
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: {
        ApiKey.INIT_PRODUCER_ID: Operation.IDEMPOTENT_WRITE,
        ApiKey.DESCRIBE_LOG_DIRS: Operation.DESCRIBE,
    },
}
"""The right that a client lacks when a broker refuses a request with an error code. A test compares it with brokers'
own table."""
_KINDS: Final = {kind.refusal: kind for kind in ResourceKind}

ADVICE = {
    ErrorCode.MESSAGE_TOO_LARGE: "the batch is larger than the topic's max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than a segment of the topic",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer with this id has taken over; this one has to stop",
    ErrorCode.PRODUCER_FENCED: "a newer producer with this transactional id has taken over; this one has to stop",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id has expired or belongs to another producer id",
    ErrorCode.INVALID_TXN_STATE: "the transaction is not in a state that allows this: it was ended, or timed out",
    ErrorCode.TRANSACTION_ABORTABLE: "the transaction has to be aborted; then it can be tried again",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "an earlier batch of this producer is missing; its records are lost",
    ErrorCode.UNKNOWN_PRODUCER_ID: "the broker has forgotten this producer; get a new producer id",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; only a member can commit its positions",
    ErrorCode.ILLEGAL_GENERATION: "the group has members; only a member can commit its positions",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group has members; only a member can commit its positions",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the timeout is above the broker's transaction.max.timeout.ms",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than the topic's min.insync.replicas",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the text that goes with a position is too long",
}


class Asked(NamedTuple):
    """A request that a broker refused."""

    api_key: int
    text: str
    """A phrase like "broker 1 (host:port) refused Fetch of …"."""

    def __str__(self) -> str:
        return self.text


def refusal(code: ErrorCode, asked: Asked | str, message: str | None = None) -> RequestRefused:
    """The error for a refused request, with the broker's own message or ours."""
    advice = message or _missing_right(code, asked) or ADVICE.get(code, "")
    return RequestRefused(code, f"{asked}: {code.name}{f' ({advice})' if advice else ''}")


def _missing_right(code: ErrorCode, asked: Asked | str) -> str:
    """The right that the client lacks; "" if the refusal is about something else."""
    if code not in RIGHTS:
        return ""
    operation = RIGHTS[code].get(ApiKey(asked.api_key)) if isinstance(asked, Asked) else None
    what = f"one on the {_KINDS[code]}" if operation is None else f"{operation} of the {_KINDS[code]}"
    return f"the right is missing: {what}; `cordwood acl explain` says which rule decides"

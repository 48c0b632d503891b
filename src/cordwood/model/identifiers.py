"""Names and ids: topics, partitions, brokers, epochs, offsets, timestamps that are absent."""

import re
import uuid
from typing import Final, NamedTuple, NewType

from cordwood.model.errors import ErrorCode, ProtocolError

TopicId = uuid.UUID

BrokerId = NewType("BrokerId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
"""One registration of a broker: a broker that starts again has another."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""One leadership of a partition."""
Offset = NewType("Offset", int)
"""A place in one partition. A follower's fetch names all four numbers side by side."""

CLIENT: Final = BrokerId(-1)
"""Stands for a broker id in the requests of clients."""
NO_BROKER_EPOCH: Final = BrokerEpoch(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_OFFSET: Final = Offset(-1)

NO_TIMESTAMP_MS = -1

ZERO_TOPIC_ID = TopicId(int=0)
"""Means on the wire that no topic id is given."""

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})
NEVER_AUTO_CREATED = INTERNAL_TOPICS | {"__share_group_state", "__cluster_metadata"}
"""Topics that only brokers make. Kafka has all of them, and a client's request never creates one."""

MAX_TOPIC_NAME_LENGTH = 249
_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


class TopicPartition(NamedTuple):
    """One partition: the scope within which order is total."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, directory_name: str) -> "TopicPartition":
        """The partition whose log lives in a directory of this name. Raises ValueError for other names."""
        topic, dash, partition = directory_name.rpartition("-")
        if not dash or not topic or not partition.isdecimal():
            raise ValueError(f"not the directory of a partition: {directory_name!r}")
        return cls(topic, int(partition))


def no_topic_with(topic_id: TopicId | None) -> ProtocolError:
    """The answer to a request that names a topic by an id that no topic has, or none that its sender may know of."""
    return ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with the id {topic_id}.")


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION, with the reason, for a name that Kafka refuses."""
    if not name:
        reason = "it is empty"
    elif name in (".", ".."):
        reason = "it cannot be '.' or '..'"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"it is longer than {MAX_TOPIC_NAME_LENGTH} characters"
    elif not _LEGAL_TOPIC_NAME.match(name):
        reason = "it has characters other than ASCII letters and digits, '.', '_' and '-'"
    else:
        return
    raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {name!r} is not valid: {reason}.")

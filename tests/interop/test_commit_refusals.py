"""Who may commit and read positions, and what the others are told: the same codes as Apache Kafka 4.3, case by case.

`CORDWOOD_TEST_BOOTSTRAP=host:port pytest tests/interop/test_commit_refusals.py` asks a real Kafka.
"""

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from tests.conftest import RunningBroker
from tests.deadline import eventually
from tests.raw_client import RawClient

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey

pytestmark = pytest.mark.landing

GROUP_KEY, TRANSACTION_KEY = 0, 1
PASSING = ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS")
"""What Kafka says while it makes its internal topics, or ends a transaction."""


class Author(NamedTuple):
    member_id: str
    epoch: int
    instance_id: str | None = None

    def fields(self) -> dict[str, Any]:
        author: dict[str, Any] = {"member_id": self.member_id, "generation_id_or_member_epoch": self.epoch}
        return author if self.instance_id is None else {**author, "group_instance_id": self.instance_id}


NOBODY = Author("", -1)


class Situation:
    """A group in some state, and requests in the names of those in it and of strangers."""

    def __init__(self, client: RawClient, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.group = f"group-{uuid.uuid4().hex[:8]}"
        self.transactional_id = f"writer-{uuid.uuid4().hex[:8]}"
        client.send(ApiKey.FIND_COORDINATOR, 4, key_type=GROUP_KEY, coordinator_keys=[self.group])

    def commit(self, author: Author, version: int = 9) -> str:
        position = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        known_as: dict[str, Any] = {"name": self.topic} if version < 10 else {"topic_id": self.topic_id()}
        topics = [{**known_as, "partitions": [position]}]

        def once() -> str:
            answer = self.client.send(
                ApiKey.OFFSET_COMMIT, version, group_id=self.group, topics=topics, **author.fields()
            )
            return ErrorCode(answer.topics[0].partitions[0].error_code).name

        return eventually(lambda: _settled(once()))

    def fetch(self, author: Author) -> str:
        asked = {
            "group_id": self.group,
            "member_id": author.member_id or None,
            "member_epoch": author.epoch,
            "topics": [{"name": self.topic, "partition_indexes": [0]}],
        }
        answer = self.client.send(ApiKey.OFFSET_FETCH, 9, groups=[asked])
        return ErrorCode(answer.groups[0].error_code).name

    def commit_in_transaction(self, author: Author) -> str:
        """In a transaction of its own, at version 5, which adds the group's partition itself."""
        find = {"key_type": TRANSACTION_KEY, "coordinator_keys": [self.transactional_id]}
        self.client.send(ApiKey.FIND_COORDINATOR, 4, **find)

        def begun() -> Any:
            answer = self.client.send(
                ApiKey.INIT_PRODUCER_ID,
                5,
                transactional_id=self.transactional_id,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            return answer if answer.error_code == 0 else None

        writer = eventually(begun)
        who = {
            "transactional_id": self.transactional_id,
            "producer_id": writer.producer_id,
            "producer_epoch": writer.producer_epoch,
        }
        position = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}

        def once() -> str:
            answer = self.client.send(
                ApiKey.TXN_OFFSET_COMMIT,
                5,
                **who,
                **author.fields(),
                group_id=self.group,
                topics=[{"name": self.topic, "partitions": [position]}],
            )
            return ErrorCode(answer.topics[0].partitions[0].error_code).name

        return eventually(lambda: _settled(once()))

    def topic_id(self) -> uuid.UUID:
        answer = self.client.send(ApiKey.METADATA, 12, topics=[{"name": self.topic, "topic_id": uuid.UUID(int=0)}])
        found = answer.topics[0].topic_id
        assert found is not None
        return found

    # Making it

    def classic_member(self, **options: Any) -> Author:
        """The only one of a stable group."""
        joined = self.client.join(9, self.group, **options)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = self.client.join(9, self.group, joined.member_id, **options)
        assert joined.error_code == ErrorCode.NONE, joined
        instance_id = options.get("group_instance_id")
        me = {"group_id": self.group, "generation_id": joined.generation_id, "member_id": joined.member_id}
        synced = self.client.send(
            ApiKey.SYNC_GROUP,
            5,
            **me,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": joined.member_id, "assignment": b""}],
        )
        assert synced.error_code == ErrorCode.NONE, synced
        return Author(joined.member_id, joined.generation_id, instance_id)

    def leave(self, member: Author) -> None:
        leaving = [{"member_id": member.member_id, "group_instance_id": member.instance_id}]
        answer = self.client.send(ApiKey.LEAVE_GROUP, 5, group_id=self.group, members=leaving)
        assert answer.error_code == ErrorCode.NONE

    def consumer_member(self) -> Author:
        joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [self.topic], "topic_partitions": []}
        return self._beat(Author(str(uuid.uuid4()), 0), **joining)

    def leave_consumers(self, member: Author) -> None:
        self._beat(member._replace(epoch=-1))

    def _beat(self, member: Author, **fields: Any) -> Author:
        answer = self.client.send(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            group_id=self.group,
            member_id=member.member_id,
            member_epoch=member.epoch,
            **fields,
        )
        assert answer.error_code == ErrorCode.NONE, answer
        return member._replace(epoch=answer.member_epoch)


def _settled(code: str) -> str:
    return "" if code in PASSING else code


@pytest.fixture
def situation(broker: RunningBroker, topic: str) -> Iterator[Situation]:
    client = RawClient(broker.bootstrap)
    made = Situation(client, topic)
    eventually(lambda: made.fetch(NOBODY) == "NONE", within_s=60, what="a coordinator")
    yield made
    client.close()


STRANGER = "stranger"


def test_no_group(situation: Situation) -> None:
    author = Author(STRANGER, 3)
    assert [situation.commit(author, version) for version in (2, 8, 9, 10)] == [
        "ILLEGAL_GENERATION",
        "ILLEGAL_GENERATION",
        "GROUP_ID_NOT_FOUND",
        "GROUP_ID_NOT_FOUND",
    ]
    assert situation.commit_in_transaction(author) == "ILLEGAL_GENERATION"
    assert situation.fetch(author) == "NONE"
    assert situation.commit(Author(STRANGER, -1)) == "NONE"


def test_positions_without_members(situation: Situation) -> None:
    assert situation.commit(NOBODY) == "NONE"
    assert [situation.commit(Author(STRANGER, 3), version) for version in (8, 9)] == ["UNKNOWN_MEMBER_ID"] * 2
    assert situation.commit_in_transaction(Author(STRANGER, 3)) == "UNKNOWN_MEMBER_ID"
    assert situation.commit(Author(STRANGER, -1)) == "NONE"
    assert situation.fetch(Author(STRANGER, 3)) == "NONE"


def test_a_classic_group(situation: Situation) -> None:
    member = situation.classic_member()
    assert [situation.commit(member, version) for version in (8, 9, 10)] == ["NONE"] * 3
    assert situation.commit(NOBODY) == "UNKNOWN_MEMBER_ID"
    assert situation.commit(member._replace(member_id=STRANGER)) == "UNKNOWN_MEMBER_ID"
    assert situation.commit(Author(STRANGER, -1)) == "UNKNOWN_MEMBER_ID"
    for epoch in (-1, 0, member.epoch + 1):
        assert situation.commit(member._replace(epoch=epoch)) == "ILLEGAL_GENERATION", epoch
    assert situation.commit(member._replace(instance_id="unknown")) == "UNKNOWN_MEMBER_ID"
    assert situation.fetch(member._replace(epoch=99)) == "NONE", "in this protocol nobody says who reads"

    assert situation.commit_in_transaction(NOBODY) == "NONE"
    assert situation.commit_in_transaction(member) == "NONE"
    assert situation.commit_in_transaction(member._replace(epoch=member.epoch + 1)) == "ILLEGAL_GENERATION"
    assert situation.commit_in_transaction(Author(STRANGER, member.epoch)) == "UNKNOWN_MEMBER_ID"

    situation.leave(member)
    assert situation.commit(member) == "UNKNOWN_MEMBER_ID"
    assert situation.commit(NOBODY) == "NONE"


def test_a_static_member(situation: Situation) -> None:
    member = situation.classic_member(group_instance_id="one")
    assert situation.commit(member) == "NONE"
    assert situation.commit(member._replace(member_id=STRANGER)) == "FENCED_INSTANCE_ID"
    assert situation.commit_in_transaction(member._replace(member_id=STRANGER)) == "FENCED_INSTANCE_ID"


def test_a_consumer_group(situation: Situation) -> None:
    member = situation.consumer_member()
    assert [situation.commit(member, version) for version in (9, 10)] == ["NONE"] * 2
    assert situation.commit(member, 8) == "UNSUPPORTED_VERSION"
    assert situation.commit(NOBODY) == "UNKNOWN_MEMBER_ID"
    assert situation.commit(Author(STRANGER, member.epoch)) == "UNKNOWN_MEMBER_ID"
    assert situation.commit(member._replace(epoch=member.epoch + 1)) == "STALE_MEMBER_EPOCH"
    assert situation.commit(member._replace(epoch=member.epoch - 1)) == "STALE_MEMBER_EPOCH"
    assert situation.fetch(member) == "NONE"
    assert situation.fetch(NOBODY) == "NONE"
    assert situation.fetch(Author(STRANGER, member.epoch)) == "UNKNOWN_MEMBER_ID"
    assert situation.fetch(member._replace(epoch=member.epoch + 1)) == "STALE_MEMBER_EPOCH"

    assert situation.commit_in_transaction(NOBODY) == "NONE"
    assert situation.commit_in_transaction(member) == "NONE"
    assert situation.commit_in_transaction(member._replace(epoch=member.epoch + 1)) == "ILLEGAL_GENERATION"
    assert situation.commit_in_transaction(Author(STRANGER, member.epoch)) == "UNKNOWN_MEMBER_ID"

    situation.leave_consumers(member)
    assert situation.commit(member) == "UNKNOWN_MEMBER_ID"
    assert situation.commit(NOBODY) == "NONE"
    assert situation.commit(Author(STRANGER, -1)) == "NONE"

"""What members do wrong, and what they are told: the same codes as Apache Kafka 4.3, case by case, in both protocols.

`CORDWOOD_TEST_BOOTSTRAP=host:port pytest tests/interop/test_member_refusals.py` asks a real Kafka.
"""

import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conftest import RunningBroker
from tests.deadline import eventually
from tests.raw_client import RawClient

from cordwood.groups.classic.subscription import write_assignment
from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey

pytestmark = pytest.mark.landing

GROUP_KEY = 0
NOBODY = {"member_id": "stranger", "group_instance_id": None}


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    client = RawClient(broker.bootstrap)

    def ready() -> bool:
        client.send(ApiKey.FIND_COORDINATOR, 4, key_type=GROUP_KEY, coordinator_keys=["anybody"])
        fetched = client.send(ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": "anybody", "topics": None}])
        return bool(fetched.groups[0].error_code == 0)

    eventually(ready, what="a coordinator")
    yield client
    client.close()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def name(code: int) -> str:
    return ErrorCode(code).name


class TestConsumerProtocol:
    @pytest.fixture
    def joining(self, topic: str) -> dict[str, Any]:
        return {
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [topic],
            "topic_partitions": [],
        }

    @staticmethod
    def beat(client: RawClient, group: str, fields: dict[str, Any], **changes: Any) -> Any:
        return client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=group, **{**fields, **changes})

    def joined(self, client: RawClient, group: str, fields: dict[str, Any]) -> int:
        """The epoch of a member that has the topic's partition: on Kafka that may be a little after its creation."""

        def once() -> int:
            answer = self.beat(client, group, fields)
            assert name(answer.error_code) == "NONE", answer
            owned = [each.partitions for each in answer.assignment.topic_partitions]
            return int(answer.member_epoch) if owned == [[0]] else 0

        return eventually(once, what="an assignment")

    @staticmethod
    def quiet(member_id: str, epoch: int, instance_id: str | None = None) -> dict[str, Any]:
        return {"member_id": member_id, "member_epoch": epoch, "instance_id": instance_id}

    @pytest.mark.parametrize(
        "wrong",
        [
            {"subscribed_topic_names": None},
            {"rebalance_timeout_ms": -1},
            {"topic_partitions": None},
            {"topic_partitions": [{"topic_id": uuid.UUID(int=1), "partitions": [0]}]},
            {"member_id": ""},
            {"instance_id": ""},
            {"rack_id": ""},
            {"member_epoch": -3},
            {"member_epoch": -2},
        ],
        ids=lambda wrong: " ".join(wrong),
    )
    def test_a_request_that_makes_no_sense(
        self, client: RawClient, group: str, joining: dict[str, Any], wrong: dict[str, Any]
    ) -> None:
        assert name(self.beat(client, group, joining, **wrong).error_code) == "INVALID_REQUEST"
        described = client.send(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[group]).groups[0]
        assert name(described.error_code) == "GROUP_ID_NOT_FOUND"

    def test_what_is_not_known(self, client: RawClient, group: str, joining: dict[str, Any]) -> None:
        for epoch in (5, -1):
            assert name(self.beat(client, group, self.quiet("m", epoch)).error_code) == "GROUP_ID_NOT_FOUND"
        assert name(self.beat(client, group, joining, server_assignor="magic").error_code) == "UNSUPPORTED_ASSIGNOR"
        refused = self.beat(client, group, joining, subscribed_topic_regex="(")
        assert name(refused.error_code) == "INVALID_REGULAR_EXPRESSION"

    def test_strangers_and_epochs(self, client: RawClient, group: str, joining: dict[str, Any]) -> None:
        epoch = self.joined(client, group, joining)

        def told(member_id: str, epoch: int, instance_id: str | None = None) -> str:
            return name(self.beat(client, group, self.quiet(member_id, epoch, instance_id)).error_code)

        assert told("m", epoch) == "NONE"
        assert told("m", epoch + 1) == "FENCED_MEMBER_EPOCH"
        assert told("stranger", epoch) == "UNKNOWN_MEMBER_ID"
        assert told("stranger", -1) == "UNKNOWN_MEMBER_ID"
        assert told("m", epoch, "unknown") == "UNKNOWN_MEMBER_ID"
        assert told("m", -1) == "NONE"
        assert told("m", epoch) == "UNKNOWN_MEMBER_ID"

    def test_static_members(self, client: RawClient, group: str, joining: dict[str, Any]) -> None:
        epoch = self.beat(client, group, joining, instance_id="i").member_epoch
        assert epoch > 0

        def told(member_id: str, epoch: int) -> str:
            return name(self.beat(client, group, self.quiet(member_id, epoch, "i")).error_code)

        second = self.beat(client, group, joining, instance_id="i", member_id="n")
        assert name(second.error_code) == "UNRELEASED_INSTANCE_ID"
        assert told("n", epoch) == "FENCED_INSTANCE_ID"
        assert told("n", -2) == "FENCED_INSTANCE_ID"
        assert told("m", -2) == "NONE"
        assert name(self.beat(client, group, joining, instance_id="i", member_id="n").error_code) == "NONE"
        assert told("m", epoch) == "FENCED_INSTANCE_ID"
        assert told("n", -1) == "NONE"

    def test_who_reads_nothing_is_a_member_all_the_same(
        self, client: RawClient, group: str, joining: dict[str, Any]
    ) -> None:
        nothings: tuple[dict[str, Any], ...] = ({"subscribed_topic_names": []}, {"subscribed_topic_regex": ""})
        for number, nothing in enumerate(nothings):
            fields = {**joining, "subscribed_topic_names": None, "member_id": f"m{number}", **nothing}
            joined = self.beat(client, group, fields)
            assert (name(joined.error_code), joined.assignment.topic_partitions) == ("NONE", [])


class TestClassicProtocol:
    def test_joining(self, client: RawClient, group: str) -> None:
        assert name(client.join(9, group, "stranger").error_code) == "UNKNOWN_MEMBER_ID"
        asked = client.join(9, group)
        assert name(asked.error_code) == "MEMBER_ID_REQUIRED"
        for wrong, code in (
            ({"session_timeout_ms": 1}, "INVALID_SESSION_TIMEOUT"),
            ({"protocols": []}, "INCONSISTENT_GROUP_PROTOCOL"),
            ({"protocol_type": ""}, "INCONSISTENT_GROUP_PROTOCOL"),
        ):
            assert name(client.join(9, group, asked.member_id, **wrong).error_code) == code
        joined = client.join(9, group, asked.member_id)
        assert (name(joined.error_code), joined.generation_id) == ("NONE", 1)

    def test_syncing_beating_and_leaving(self, client: RawClient, group: str, topic: str) -> None:
        member_id = client.join(9, group).member_id
        assert name(client.join(9, group, member_id).error_code) == "NONE"
        me = {"group_id": group, "generation_id": 1, "member_id": member_id}
        protocol = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}

        def sync(**changes: Any) -> str:
            return name(client.send(ApiKey.SYNC_GROUP, 5, **{**me, **protocol, **changes}).error_code)

        def beat(**changes: Any) -> str:
            return name(client.send(ApiKey.HEARTBEAT, 4, **{**me, **changes}).error_code)

        assert sync(member_id="stranger") == "UNKNOWN_MEMBER_ID"
        assert sync(generation_id=9) == "ILLEGAL_GENERATION"
        assert sync(protocol_name="other") == "INCONSISTENT_GROUP_PROTOCOL"
        assert sync(protocol_type=None, protocol_name=None) == "INCONSISTENT_GROUP_PROTOCOL"
        assert beat() == "NONE"
        assert sync() == "NONE"
        assert beat(member_id="stranger") == "UNKNOWN_MEMBER_ID"
        assert beat(generation_id=9) == "ILLEGAL_GENERATION"
        assert beat(group_id="nowhere") == "UNKNOWN_MEMBER_ID"
        left = client.send(ApiKey.LEAVE_GROUP, 5, group_id=group, members=[NOBODY])
        assert (name(left.error_code), name(left.members[0].error_code)) == ("NONE", "UNKNOWN_MEMBER_ID")
        heartbeat = {"group_id": group, "member_id": "m", "member_epoch": 5}
        assert name(client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **heartbeat).error_code) == "GROUP_ID_NOT_FOUND"

        deleted = client.send(ApiKey.DELETE_GROUPS, 2, groups_names=[group, "nowhere"])
        codes = {each.group_id: name(each.error_code) for each in deleted.results}
        assert codes == {group: "NON_EMPTY_GROUP", "nowhere": "GROUP_ID_NOT_FOUND"}
        listed = client.send(ApiKey.LIST_GROUPS, 5).groups
        assert [(each.group_state, each.group_type) for each in listed if each.group_id == group] == [
            ("Stable", "classic")
        ]
        client.send(
            ApiKey.LEAVE_GROUP, 5, group_id=group, members=[{"member_id": member_id, "group_instance_id": None}]
        )


class TestBothProtocols:
    """Members of both protocols share a group, as in Kafka: also what they are told when all goes well."""

    @pytest.fixture
    def protocols(self, topic: str) -> list[dict[str, Any]]:
        subscription = struct.pack(f">hih{len(topic)}si", 0, 1, len(topic), topic.encode(), -1)
        return [{"name": "range", "metadata": subscription}]

    @pytest.fixture
    def joining(self, topic: str) -> dict[str, Any]:
        return {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [topic], "topic_partitions": []}

    @staticmethod
    def beat(client: RawClient, group: str, member_id: str, epoch: int, **fields: Any) -> tuple[str, int]:
        answer = client.send(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=group, member_id=member_id, member_epoch=epoch, **fields
        )
        return name(answer.error_code), answer.member_epoch

    @staticmethod
    def kind(client: RawClient, group: str) -> str:
        (listed,) = [each for each in client.send(ApiKey.LIST_GROUPS, 5).groups if each.group_id == group]
        return str(listed.group_type)

    def test_a_group_goes_over_and_back(
        self, client: RawClient, group: str, topic: str, protocols: list[dict[str, Any]], joining: dict[str, Any]
    ) -> None:
        def join(member_id: str = "", **fields: Any) -> Any:
            return client.join(9, group, member_id, **{"protocols": protocols, **fields})

        def beat(**changes: Any) -> str:
            return name(client.send(ApiKey.HEARTBEAT, 4, **{**me, **changes}).error_code)

        def sync(**changes: Any) -> tuple[str, bytes]:
            protocol = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
            answer = client.send(ApiKey.SYNC_GROUP, 5, **{**me, **protocol, **changes})
            return name(answer.error_code), bytes(answer.assignment)

        def commit(generation: int, member_id: str) -> str:
            position = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
            answer = client.send(
                ApiKey.OFFSET_COMMIT,
                8,
                group_id=group,
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                topics=[{"name": topic, "partitions": [position]}],
            )
            return name(answer.topics[0].partitions[0].error_code)

        member_id = join().member_id
        me = {"group_id": group, "generation_id": 1, "member_id": member_id}
        assert join(member_id).generation_id == 1
        everything = write_assignment([(topic, [0])])
        assert sync(assignments=[{"member_id": member_id, "assignment": everything}]) == ("NONE", everything)
        assert self.kind(client, group) == "classic"

        assert self.beat(client, group, "new", 0, **joining) == ("NONE", 2)
        assert self.kind(client, group) == "consumer"
        assert beat() == "REBALANCE_IN_PROGRESS"
        assert sync() == ("REBALANCE_IN_PROGRESS", b"")
        assert (commit(1, member_id), commit(2, member_id)) == ("NONE", "ILLEGAL_GENERATION")
        assert self.beat(client, group, "new", 2) == ("NONE", 2)
        again = join(member_id)
        assert (name(again.error_code), again.generation_id) == ("NONE", 2)
        assert (again.protocol_type, again.protocol_name, again.leader, again.members) == ("consumer", "range", "", [])
        me["generation_id"] = 2
        assert sync(protocol_name="other") == ("INCONSISTENT_GROUP_PROTOCOL", b"")
        assert sync(generation_id=1) == ("ILLEGAL_GENERATION", b"")
        assert sync(member_id="new") == ("UNKNOWN_MEMBER_ID", b"")
        assert sync()[0] == "NONE"
        assert (beat(), beat(generation_id=1), beat(member_id="new")) == (
            "NONE",
            "ILLEGAL_GENERATION",
            "UNKNOWN_MEMBER_ID",
        )
        assert beat(group_instance_id="nobody") == "UNKNOWN_MEMBER_ID"
        (described,) = client.send(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[group]).groups
        assert sorted((each.member_type, each.member_epoch) for each in described.members) == [(0, 2), (1, 2)]
        assert name(client.send(ApiKey.DESCRIBE_GROUPS, 6, groups=[group]).groups[0].error_code) == "GROUP_ID_NOT_FOUND"

        assert name(join().error_code) == "MEMBER_ID_REQUIRED"
        others = [{**protocols[0], "name": "other"}]
        wrongs: tuple[dict[str, Any], ...] = ({"protocols": []}, {"protocols": others}, {"protocol_type": "connect"})
        for wrong in wrongs:
            assert name(join(**wrong).error_code) == "INCONSISTENT_GROUP_PROTOCOL"
        assert name(join(session_timeout_ms=1).error_code) == "INVALID_SESSION_TIMEOUT"
        assert name(join("stranger", group_instance_id="nobody").error_code) == "UNKNOWN_MEMBER_ID"

        assert self.beat(client, group, "new", -1) == ("NONE", -1)
        assert self.kind(client, group) == "classic"
        assert beat() == "REBALANCE_IN_PROGRESS"
        led = join(member_id)
        assert (name(led.error_code), led.generation_id, led.leader) == ("NONE", 3, member_id)

    @pytest.mark.parametrize("kind", ["connect", "consumer"])
    def test_groups_that_cannot_go_over(
        self,
        client: RawClient,
        group: str,
        topic: str,
        protocols: list[dict[str, Any]],
        joining: dict[str, Any],
        kind: str,
    ) -> None:
        """Because their members are no consumers, or have an assignor that says more than who gets what."""
        member_id = client.join(9, group, protocols=protocols, protocol_type=kind).member_id
        assert client.join(9, group, member_id, protocols=protocols, protocol_type=kind).generation_id == 1
        more = write_assignment([(topic, [0])])[:-4] + struct.pack(">i3s", 3, b"why")
        me = {"group_id": group, "generation_id": 1, "member_id": member_id}
        shares = [{"member_id": member_id, "assignment": more}]
        client.send(ApiKey.SYNC_GROUP, 5, **me, protocol_type=kind, protocol_name="range", assignments=shares)
        assert self.beat(client, group, "new", 0, **joining)[0] == "GROUP_ID_NOT_FOUND"
        assert name(client.send(ApiKey.HEARTBEAT, 4, **me).error_code) == "NONE"

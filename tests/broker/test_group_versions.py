"""A member's whole life in every version of the group APIs, byte by byte on a socket; and what strangers are told."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.raw_client import RawClient

from cordwood.embedded import Broker
from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey

GROUPS_MAX = 40


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "groups.max": GROUPS_MAX, "num.partitions": 1}
    with Broker(settings=settings) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    client = RawClient(broker.bootstrap_servers)
    client.send(ApiKey.METADATA, 4, topics=[{"name": "t"}], allow_auto_topic_creation=True)
    yield client
    client.close()


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_syncs_commits_and_leaves(client: RawClient, version: int) -> None:
    group = f"group-{version}"
    joined = client.join(version, group)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = client.join(version, group, joined.member_id)
    assert joined.error_code == ErrorCode.NONE
    assert (joined.generation_id, joined.protocol_name, joined.leader) == (1, "range", joined.member_id)
    assert [member.member_id for member in joined.members] == [joined.member_id]
    me = {"group_id": group, "generation_id": 1, "member_id": joined.member_id}

    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    assignments = [{"member_id": joined.member_id, "assignment": b"mine"}]
    synced = client.send(ApiKey.SYNC_GROUP, version, **me, **protocol, assignments=assignments)
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"mine")
    assert client.send(ApiKey.HEARTBEAT, version, **me).error_code == ErrorCode.NONE

    described = client.send(ApiKey.DESCRIBE_GROUPS, version, groups=[group]).groups[0]
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert [member.member_assignment for member in described.members] == [b"mine"]
    assert group in [each.group_id for each in client.send(ApiKey.LIST_GROUPS, version).groups]

    assert commit(client, version, group, 3, generation_id_or_member_epoch=1, member_id=joined.member_id) == 0
    assert commit(client, version, group, 4) == ErrorCode.UNKNOWN_MEMBER_ID
    subscribed = client.send(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=PARTITION).topics[0].partitions[0]
    assert subscribed.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    refused = client.send(ApiKey.DELETE_GROUPS, version, groups_names=[group]).results[0]
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP

    left = client.send(
        ApiKey.LEAVE_GROUP,
        version,
        group_id=group,
        member_id=joined.member_id,
        members=[{"member_id": joined.member_id, "group_instance_id": None}],
    )
    assert left.error_code == ErrorCode.NONE
    assert client.send(ApiKey.HEARTBEAT, version, **me).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    deleted = client.send(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=PARTITION).topics[0].partitions[0]
    assert deleted.error_code == ErrorCode.NONE
    assert client.send(ApiKey.DELETE_GROUPS, version, groups_names=[group]).results[0].error_code == ErrorCode.NONE
    assert group not in [each.group_id for each in client.send(ApiKey.LIST_GROUPS, version).groups]


PARTITION = [{"name": "t", "partitions": [{"partition_index": 0}]}]


def commit(client: RawClient, version: int, group: str, offset: int, **author: Any) -> int:
    version = min(max(version, 2), 9)
    position = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    topics = [{"name": "t", "partitions": [position]}]
    answer = client.send(ApiKey.OFFSET_COMMIT, version, group_id=group, topics=topics, **author)
    return int(answer.topics[0].partitions[0].error_code)


def test_lists_are_filtered_by_state_and_type(client: RawClient) -> None:
    assert commit(client, 9, "idle", 1) == ErrorCode.NONE

    def listed(**filters: Any) -> list[str]:
        return [each.group_id for each in client.send(ApiKey.LIST_GROUPS, 5, **filters).groups]

    assert "idle" in listed(states_filter=["empty"], types_filter=["classic"])
    assert "idle" not in listed(states_filter=["Stable"])
    assert "idle" not in listed(types_filter=["consumer"])


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_is_not_there_is_dead_or_not_found(client: RawClient, version: int) -> None:
    described = client.send(ApiKey.DESCRIBE_GROUPS, version, groups=["nobody"]).groups[0]
    assert described.group_state == "Dead"
    assert described.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    gone = client.send(ApiKey.DELETE_GROUPS, version, groups_names=["nobody"]).results[0]
    assert gone.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert gone.error_message == ("There is no such group." if version >= 3 else None)
    assert client.send(ApiKey.OFFSET_DELETE, 0, group_id="nobody", topics=PARTITION).error_code == gone.error_code


def test_an_empty_group_id_is_refused_everywhere(client: RawClient) -> None:
    assert client.join(9, "").error_code == ErrorCode.INVALID_GROUP_ID
    me = {"group_id": "", "generation_id": 1, "member_id": "m"}
    assert client.send(ApiKey.SYNC_GROUP, 5, **me, assignments=[]).error_code == ErrorCode.INVALID_GROUP_ID
    assert client.send(ApiKey.HEARTBEAT, 4, **me).error_code == ErrorCode.INVALID_GROUP_ID
    assert client.send(ApiKey.LEAVE_GROUP, 5, group_id="", members=[]).error_code == ErrorCode.INVALID_GROUP_ID
    assert client.send(ApiKey.OFFSET_DELETE, 0, group_id="", topics=[]).error_code == ErrorCode.INVALID_GROUP_ID
    deleted = client.send(ApiKey.DELETE_GROUPS, 2, groups_names=[""]).results[0]
    assert deleted.error_code == ErrorCode.INVALID_GROUP_ID


def test_a_group_id_that_is_too_long_is_refused_everywhere(client: RawClient) -> None:
    group = "g" * 2_000
    assert client.join(9, group).error_code == ErrorCode.INVALID_GROUP_ID
    assert commit(client, 9, group, 1) == ErrorCode.INVALID_GROUP_ID
    assert client.send(ApiKey.OFFSET_FETCH, 7, group_id=group, topics=None).error_code == ErrorCode.INVALID_GROUP_ID
    assert client.send(ApiKey.DESCRIBE_GROUPS, 6, groups=[group]).groups[0].error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(2))
def test_the_consumer_protocol_says_what_is_wrong_with_a_heartbeat(client: RawClient, version: int) -> None:
    joining = {
        "group_id": f"consumers-{version}",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }

    def beat(**changes: Any) -> Any:
        return client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **{**joining, **changes})

    assert beat(group_id="").error_code == ErrorCode.INVALID_REQUEST
    assert beat(server_assignor="magic").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert beat(member_epoch=-3).error_code == ErrorCode.INVALID_REQUEST
    assert beat(subscribed_topic_names=None).error_code == ErrorCode.INVALID_REQUEST
    if version >= 1:
        assert beat(subscribed_topic_regex="t(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert beat(member_id="").error_code == ErrorCode.INVALID_REQUEST
    joined = beat()
    assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 1)
    assert [each.partitions for each in joined.assignment.topic_partitions] == [[0]]
    described = client.send(ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=[joining["group_id"], "nobody"]).groups
    assert [each.error_code for each in described] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert described[0].members[0].assignment.topic_partitions[0].topic_name == "t"
    classic = client.join(9, str(joining["group_id"]), protocol_type="connect")
    assert classic.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert beat(member_epoch=-1).error_code == ErrorCode.NONE
    assert client.send(ApiKey.DELETE_GROUPS, 2, groups_names=[joining["group_id"]]).results[0].error_code == 0


def test_groups_beyond_the_limit_are_refused_and_those_there_go_on(client: RawClient) -> None:
    codes = [commit(client, 9, f"many-{number}", 1) for number in range(GROUPS_MAX + 5)]
    assert codes[0] == ErrorCode.NONE
    assert codes[-1] == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert client.join(9, "one more").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert commit(client, 9, "many-0", 2) == ErrorCode.NONE

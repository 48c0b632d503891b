"""Ten thousand groups on one node, half of them with a member: kept, listed, bounded, and there again after a kill."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.raw_client import RawClient

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey

GROUPS = 10_000
AT_ONCE = 250
"""Requests that are sent before the first of their answers is read."""
MEMBERS = range(0, GROUPS, 2)


def in_turns(client: RawClient, key: ApiKey, version: int, asked: list[dict[str, Any]]) -> Iterator[Any]:
    for start in range(0, len(asked), AT_ONCE):
        turn = asked[start : start + AT_ONCE]
        for fields in turn:
            client.request(key, version, **fields)
        for _ in turn:
            yield client.answer(key, version)


def commits() -> list[dict[str, Any]]:
    def position(number: int) -> dict[str, Any]:
        return {"partition_index": 0, "committed_offset": number, "committed_metadata": ""}

    return [
        {"group_id": f"group-{number}", "topics": [{"name": "orders", "partitions": [position(number)]}]}
        for number in range(GROUPS)
    ]


def joins() -> list[dict[str, Any]]:
    return [
        {
            "group_id": f"group-{number}",
            "member_id": f"member-{number}",
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["orders"],
            "topic_partitions": [],
        }
        for number in MEMBERS
    ]


@contextmanager
def connected(broker: BrokerProcess) -> Iterator[RawClient]:
    client = RawClient(broker.bootstrap)
    yield client
    client.close()


def check(broker: BrokerProcess) -> None:
    with connected(broker) as client:
        listed = client.send(ApiKey.LIST_GROUPS, 5).groups
        assert len(listed) == GROUPS
        assert sum(each.group_type == "consumer" for each in listed) == len(MEMBERS)
        asked = [{"groups": [{"group_id": f"group-{n}", "topics": None}]} for n in range(0, GROUPS, 97)]
        found = [
            answer.groups[0].topics[0].partitions[0].committed_offset
            for answer in in_turns(client, ApiKey.OFFSET_FETCH, 8, asked)
        ]
        assert found == list(range(0, GROUPS, 97))


@pytest.mark.stories
def test_ten_thousand_groups_work_on_one_node_and_the_next_is_refused(tmp_path: Path) -> None:
    settings = {"groups.max": str(GROUPS), "group.consumer.session.timeout.ms": "600000"}
    with BrokerProcess(tmp_path / "data", settings=settings, keep_port=True) as broker:
        administrator = AdminClient({"bootstrap.servers": broker.bootstrap})
        administrator.create_topics([NewTopic("orders", 3)])["orders"].result(60)
        with connected(broker) as client:
            for answer in in_turns(client, ApiKey.OFFSET_COMMIT, 8, commits()):
                assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
            for answer in in_turns(client, ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, joins()):
                assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 1)
            beyond = {**joins()[0], "group_id": "one too many"}
            refused = client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, **beyond)
            assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        check(broker)
        assert broker.rss_bytes() < 256 << 20
        broker.kill()
        broker.start()
        check(broker)
        assert broker.rss_bytes() < 256 << 20

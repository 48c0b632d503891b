"""What somebody asks for many times is answered once, and an answer that would be too large is none."""

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import create_topic

from cordwood.wire import requests
from cordwood.wire.apis import ApiKey
from cordwood.wire.widths import max_elements

TOPIC_RESOURCE = 2


def test_topics_that_are_named_again_and_again_are_answered_once(world: World) -> None:
    create_topic(world, "orders")
    orders = {"name": "orders"}
    answer = world.ask(ApiKey.METADATA, 9, topics=[orders, {"name": "no"}] * 50, allow_auto_topic_creation=False)
    assert [topic.name for topic in answer.topics] == ["orders", "no"]
    answer = world.ask(ApiKey.METADATA, 9, topics=[{"name": "new"}, orders] * 50, allow_auto_topic_creation=True)
    assert [topic.name for topic in answer.topics] == ["new", "orders"]


def test_groups_transactions_producers_and_settings_that_are_named_again_are_answered_once(world: World) -> None:
    create_topic(world, "orders")
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    groups = world.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["g", "", "h"] * 20).groups
    assert [each.group_id for each in groups] == ["g", "", "h"]
    states = world.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["a", "b"] * 20).transaction_states
    assert [each.transactional_id for each in states] == ["a", "b"]
    asked = [{"name": "orders", "partition_indexes": [0, 0]}] * 20
    described = world.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=asked).topics
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in described] == [
        ("orders", [0])
    ]
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": "orders", "configuration_keys": ["retention.ms"]}
    results = world.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource] * 20).results
    assert [[config.name for config in each.configs] for each in results] == [["retention.ms"]]


def test_nothing_asked_for_is_answered_with_nothing(world: World) -> None:
    assert not world.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[]).groups
    assert not world.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[]).transaction_states
    assert not world.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[]).markers
    assert not world.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 4, transactions=[]).results_by_transaction


def test_an_answer_that_would_be_too_large_ends_its_connection_and_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MAX_ANSWER_BYTES", 1000)
    exchange = world.begin(ApiKey.DESCRIBE_GROUPS, 5, groups=[str(number) for number in range(100)])
    assert "ask for less at a time" in exchange.hang_up_reason
    assert len(world.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"]).groups) == 1


def test_a_request_with_more_elements_than_its_api_takes_is_refused(world: World) -> None:
    width = max_elements(ApiKey.DELETE_TOPICS)
    names = [f"topic-{number}" for number in range(width + 1)]
    assert f"at most {width}" in world.begin(ApiKey.DELETE_TOPICS, 4, topic_names=names, timeout_ms=1000).hang_up_reason
    answer = world.ask(ApiKey.DELETE_TOPICS, 4, topic_names=names[:10], timeout_ms=1000)
    assert len(answer.responses) == 10

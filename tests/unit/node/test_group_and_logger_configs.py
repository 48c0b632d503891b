"""Settings of single groups and levels of loggers: described, altered, and at once in effect."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import APPEND, DELETE, SET, create_topic, error

from cordwood.wire.apis import ApiKey

BROKER, LOGGER, CLIENT_METRICS, GROUP = 4, 8, 16, 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
DYNAMIC_BROKER_LOGGER, DYNAMIC_GROUP, DEFAULT = 6, 8, 5


def alter(
    world: World, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> str:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = world.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=validate_only)
    return error(answer.responses[0].error_code)


def describe(world: World, kind: int, name: str, keys: list[str] | None = None) -> dict[str, tuple[str | None, int]]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (answer,) = world.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource]).results
    assert error(answer.error_code) == "NONE", answer
    return {each.name: (each.value, each.config_source) for each in answer.configs}


def listed(world: World, *kinds: int) -> list[tuple[int, str]]:
    answer = world.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=list(kinds))
    return [(each.resource_type, each.resource_name) for each in answer.config_resources]


class TestGroups:
    def test_what_is_set_is_seen_and_survives_a_restart(self, world: World) -> None:
        before = {HEARTBEAT: ("5000", DEFAULT), SESSION: ("45000", DEFAULT)}
        assert describe(world, GROUP, "g/1") == before
        assert listed(world, GROUP) == []
        assert alter(world, GROUP, "g/1", (SESSION, SET, "50000"), validate_only=True) == "NONE"
        assert describe(world, GROUP, "g/1") == before
        assert alter(world, GROUP, "g/1", (SESSION, SET, "50000")) == "NONE"
        world.kill()
        world.start()
        assert describe(world, GROUP, "g/1") == {HEARTBEAT: ("5000", DEFAULT), SESSION: ("50000", DYNAMIC_GROUP)}
        assert describe(world, GROUP, "g/1", [SESSION]) == {SESSION: ("50000", DYNAMIC_GROUP)}
        assert describe(world, GROUP, "other") == before
        assert listed(world, GROUP) == [(GROUP, "g/1")]
        assert alter(world, GROUP, "g/1", (SESSION, DELETE, None)) == "NONE"
        assert describe(world, GROUP, "g/1") == before
        assert listed(world, GROUP) == []

    @pytest.mark.parametrize(
        ("name", "change", "refusal"),
        [
            ("", (SESSION, SET, "50000"), "INVALID_REQUEST"),
            ("g", ("share.session.timeout.ms", SET, "50000"), "INVALID_CONFIG"),
            ("g", (SESSION, SET, "soon"), "INVALID_CONFIG"),
            ("g", (SESSION, SET, "0"), "INVALID_CONFIG"),
            ("g", (SESSION, SET, "900"), "INVALID_CONFIG"),
            ("g", (SESSION, APPEND, "50000"), "INVALID_CONFIG"),
        ],
    )
    def test_what_makes_no_sense_is_refused(
        self, world: World, name: str, change: tuple[str, int, str], refusal: str
    ) -> None:
        assert alter(world, GROUP, name, change) == refusal
        assert listed(world, GROUP) == []

    def test_members_that_work_already_get_the_new_interval_and_session(self, world: World) -> None:
        create_topic(world)

        def heartbeat(epoch: int, **joining: Any) -> Any:
            return world.ask(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id="m", member_epoch=epoch, **joining
            )

        def members() -> int:
            (group,) = world.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).groups
            return len(group.members)

        world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
        first = heartbeat(0, rebalance_timeout_ms=60_000, subscribed_topic_names=["orders"], topic_partitions=[])
        assert (first.error_code, first.heartbeat_interval_ms) == (0, 5000)
        assert alter(world, GROUP, "g", (HEARTBEAT, SET, "300"), (SESSION, SET, "2000")) == "NONE"
        assert heartbeat(first.member_epoch).heartbeat_interval_ms == 300
        world.advance(1900)
        assert members() == 1
        world.advance(200)
        assert members() == 0


class TestLoggers:
    @pytest.fixture(autouse=True)
    def _levels_as_before(self) -> Iterator[None]:
        names = ("cordwood", "cordwood.node", "cordwood.broker")
        before = {name: logging.getLogger(name).level for name in names}
        yield
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)

    def test_a_level_is_seen_set_and_taken_back(self, world: World) -> None:
        assert alter(world, LOGGER, "1", ("cordwood", SET, "ERROR")) == "NONE"
        assert describe(world, LOGGER, "1")["cordwood.node"] == ("ERROR", DYNAMIC_BROKER_LOGGER)
        assert alter(world, LOGGER, "1", ("cordwood.node", SET, "DEBUG"), validate_only=True) == "NONE"
        assert not logging.getLogger("cordwood.node").isEnabledFor(logging.DEBUG)
        assert alter(world, LOGGER, "1", ("cordwood.node", SET, "DEBUG")) == "NONE"
        assert logging.getLogger("cordwood.node").isEnabledFor(logging.DEBUG)
        assert describe(world, LOGGER, "1", ["cordwood.node"]) == {"cordwood.node": ("DEBUG", DYNAMIC_BROKER_LOGGER)}
        assert alter(world, LOGGER, "1", ("cordwood.node", DELETE, None)) == "NONE"
        assert describe(world, LOGGER, "1")["cordwood.node"][0] == "ERROR"
        assert (LOGGER, "1") in listed(world)
        assert listed(world, CLIENT_METRICS) == []

    @pytest.mark.parametrize(
        ("broker", "change", "refusal"),
        [
            ("2", ("cordwood", SET, "INFO"), "INVALID_REQUEST"),
            ("", ("cordwood", SET, "INFO"), "INVALID_REQUEST"),
            ("1", ("somebody.elses", SET, "INFO"), "INVALID_CONFIG"),
            ("1", ("cordwood", SET, "LOUD"), "INVALID_CONFIG"),
            ("1", ("cordwood", SET, None), "INVALID_CONFIG"),
            ("1", ("cordwood", DELETE, None), "INVALID_REQUEST"),
            ("1", ("cordwood", APPEND, "INFO"), "INVALID_REQUEST"),
        ],
    )
    def test_what_makes_no_sense_is_refused(
        self, world: World, broker: str, change: tuple[str, int, str | None], refusal: str
    ) -> None:
        before = describe(world, LOGGER, "1")
        assert alter(world, LOGGER, broker, change) == refusal
        assert describe(world, LOGGER, "1") == before

    def test_only_the_brokers_own_loggers_are_shown(self, world: World) -> None:
        logging.getLogger("somebody.elses")
        assert all(name.split(".")[0] == "cordwood" for name in describe(world, LOGGER, "1"))

    def test_one_request_may_alter_a_logger_and_a_topic(self, world: World) -> None:
        create_topic(world)
        change = [{"name": "cordwood.broker", "config_operation": SET, "value": "WARN"}]
        topic = [{"name": "retention.ms", "config_operation": SET, "value": "5"}]
        resources = [
            {"resource_type": LOGGER, "resource_name": "1", "configs": change},
            {"resource_type": 2, "resource_name": "orders", "configs": topic},
            {"resource_type": LOGGER, "resource_name": "7", "configs": change},
        ]
        answer = world.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
        assert [error(each.error_code) for each in answer.responses] == ["NONE", "NONE", "INVALID_REQUEST"]
        assert world.node.image.topics["orders"].settings.retention_ms == 5
        assert describe(world, LOGGER, "1")["cordwood.broker"][0] == "WARN"

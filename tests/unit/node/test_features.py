"""ApiVersions tells the metadata versions of a broker, and UpdateFeatures finalises one."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import error
from tests.unit.node.two_brokers import OTHER, register, run, write

from cordwood.cluster.metadata.rows import broker_key, decode_broker, encode_broker
from cordwood.cluster.metadata.versions import FEATURE, ONLY_FIRST
from cordwood.cluster.stores.interface import Put
from cordwood.wire.apis import ApiKey

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@pytest.fixture
def world() -> Iterator[World]:
    """A broker that supports newer versions in a cluster at version 1."""
    world = World(seed=1).start()
    write(world, Put("metadata_version", b"1"))
    yield world
    world.kill()


def update(
    world: World, level: int, feature: str = FEATURE, kind: int = UPGRADE, *, version: int = 2, **fields: Any
) -> tuple[str, str]:
    updates = [{"feature": feature, "max_version_level": level, "upgrade_type": kind}]
    answer = world.ask(ApiKey.UPDATE_FEATURES, version, feature_updates=updates, **fields)
    return error(answer.error_code), answer.error_message or ""


def features(world: World) -> tuple[dict[str, tuple[int, int]], dict[str, int], int]:
    told = world.ask(ApiKey.API_VERSIONS, 4, client_software_name="test", client_software_version="1")
    supported = {each.name: (each.min_version, each.max_version) for each in told.supported_features}
    finalised = {each.name: each.max_version_level for each in told.finalized_features}
    assert all(each.min_version_level == each.max_version_level for each in told.finalized_features)
    return supported, finalised, told.finalized_features_epoch


def test_a_version_is_finalised_and_told_with_a_higher_epoch(world: World) -> None:
    supported, finalised, epoch = features(world)
    assert supported == {"transaction.version": (0, 2), FEATURE: (1, 3)}
    assert finalised == {"transaction.version": 2, FEATURE: 1}
    assert update(world, 2, validate_only=True) == ("NONE", "")
    assert features(world)[1][FEATURE] == 1
    assert update(world, 2) == ("NONE", "")
    _, finalised, later = features(world)
    assert finalised == {"transaction.version": 2, FEATURE: 2}
    assert later > epoch
    assert update(world, 2) == ("NONE", ""), "finalised already"
    assert update(world, 2, "transaction.version") == ("NONE", "")


@pytest.mark.parametrize("version", [0, 1])
def test_older_requests_get_a_result_for_each_feature_and_a_refusal_for_all(world: World, version: int) -> None:
    updates = [{"feature": FEATURE, "max_version_level": 77}]
    answer = world.ask(ApiKey.UPDATE_FEATURES, version, feature_updates=updates)
    assert (error(answer.error_code), list(answer.results)) == ("INVALID_UPDATE_VERSION", [])
    assert "supports versions 1 to 3" in (answer.error_message or "")
    updates[0]["max_version_level"] = 2
    answer = world.ask(ApiKey.UPDATE_FEATURES, version, feature_updates=updates)
    (result,) = answer.results
    assert (error(answer.error_code), result.feature, error(result.error_code)) == ("NONE", FEATURE, "NONE")


@pytest.mark.parametrize("kind", [UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_a_finalised_version_is_not_left_by_whatever_kind_of_downgrade(world: World, kind: int) -> None:
    assert update(world, 2) == ("NONE", "")
    code, message = update(world, 1, kind=kind)
    assert code == "INVALID_UPDATE_VERSION"
    assert "2 is final" in message


def test_updates_that_cannot_be_meant_are_refused_and_nothing_changes(world: World) -> None:
    assert update(world, 2, kind=SAFE_DOWNGRADE)[0] == "INVALID_UPDATE_VERSION"
    assert update(world, 0)[0] == "INVALID_UPDATE_VERSION"
    assert update(world, -1)[0] == "INVALID_UPDATE_VERSION"
    assert update(world, 2, kind=9)[0] == "INVALID_UPDATE_VERSION"
    assert update(world, 20, "metadata.version") == (
        "INVALID_UPDATE_VERSION",
        f"There is no feature metadata.version here: the version of the metadata is {FEATURE}.",
    )
    assert update(world, 1, "transaction.version")[0] == "INVALID_UPDATE_VERSION"
    both = [
        {"feature": FEATURE, "max_version_level": 2, "upgrade_type": UPGRADE},
        {"feature": "transaction.version", "max_version_level": 1, "upgrade_type": SAFE_DOWNGRADE},
    ]
    answer = world.ask(ApiKey.UPDATE_FEATURES, 2, feature_updates=both)
    assert error(answer.error_code) == "INVALID_UPDATE_VERSION"
    answer = world.ask(ApiKey.UPDATE_FEATURES, 2, feature_updates=[both[0], both[0]])
    assert error(answer.error_code) == "INVALID_REQUEST"
    assert world.node.image.metadata_version == 1


def test_a_version_is_refused_while_another_broker_is_older(world: World) -> None:
    register(world)
    item = run(world.store.get(broker_key(OTHER)))
    row = decode_broker(item.key, item.value)._replace(metadata_versions=ONLY_FIRST)
    write(world, Put(item.key, encode_broker(row)))
    code, message = update(world, 2)
    assert code == "FEATURE_UPDATE_FAILED"
    assert "broker 2 (only version 1)" in message

"""Names and numbers at the edge of what a request can carry: each is answered, and the broker goes on."""

from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, error, fill

from cordwood.wire.apis import ApiKey

LONGEST = "x" * 32_767
"""What a string of two length bytes can hold: a message that repeats it and says more cannot be sent."""

TOPIC = {"name": LONGEST, "num_partitions": 1, "replication_factor": 1}
RESOURCE = {"resource_type": 2, "resource_name": LONGEST}
ID = {"transactional_id": LONGEST, "producer_id": 1, "producer_epoch": 0}


@pytest.mark.parametrize(
    ("key", "version", "values", "results"),
    [
        (ApiKey.CREATE_TOPICS, 2, {"topics": [TOPIC]}, "topics"),
        (ApiKey.CREATE_PARTITIONS, 0, {"topics": [{"name": LONGEST, "count": 2}]}, "results"),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"resources": [{**RESOURCE, "configs": []}]}, "responses"),
        (ApiKey.ALTER_CONFIGS, 0, {"resources": [{**RESOURCE, "configs": []}]}, "responses"),
        (ApiKey.DESCRIBE_CONFIGS, 1, {"resources": [{**RESOURCE, "configuration_keys": None}]}, "results"),
    ],
)
def test_a_refusal_that_repeats_the_longest_name_still_fits_into_its_answer(
    world: World, key: ApiKey, version: int, values: dict[str, Any], results: str
) -> None:
    (result,) = getattr(world.ask(key, version, **values), results)
    assert result.error_code != 0
    goes_on(world)


@pytest.mark.parametrize("first", [True, False])
def test_a_transactional_id_that_no_record_could_hold_is_refused(world: World, first: bool) -> None:
    """The first one waits for a block of producer ids, and is decided when nobody stands between it and the loop."""
    asked = {"transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
    if not first:
        assert world.ask(ApiKey.INIT_PRODUCER_ID, 5, transactional_id="short", **asked).error_code == 0
    answer = world.ask(ApiKey.INIT_PRODUCER_ID, 5, transactional_id=LONGEST, **asked)
    assert error(answer.error_code) == "INVALID_REQUEST"
    goes_on(world)


def test_nobody_is_looked_for_under_an_id_that_nobody_can_have(world: World) -> None:
    assert error(world.ask(ApiKey.END_TXN, 5, **ID, committed=True).error_code) == "INVALID_REQUEST"
    described = world.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[LONGEST]).transaction_states[0]
    assert error(described.error_code) in ("INVALID_REQUEST", "TRANSACTIONAL_ID_NOT_FOUND")
    added = world.ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, **{**ID, "transactional_id": "short"}, group_id=LONGEST)
    assert error(added.error_code) == "INVALID_GROUP_ID"
    goes_on(world)


def test_a_position_may_be_kept_longer_than_time_is_counted(world: World) -> None:
    create_topic(world)
    position = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    topics = [{"name": "orders", "partitions": [position]}]
    asked = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": 2**63 - 1}
    answer = world.ask(ApiKey.OFFSET_COMMIT, 3, **asked, topics=topics)
    assert answer.topics[0].partitions[0].error_code == 0
    world.kill()
    world.start()
    wanted = [{"name": "orders", "partition_indexes": [0]}]
    found = world.ask(ApiKey.OFFSET_FETCH, 5, group_id="g", topics=wanted).topics[0].partitions[0]
    assert (found.error_code, found.committed_offset) == (0, 7)


def goes_on(world: World) -> None:
    create_topic(world, "after")
    fill(world, "after", b"value")

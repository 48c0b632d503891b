"""The files of dropped segments go file.delete.delay.ms after the segments, not with a later round of retention: a full
disk waits for the room."""

from collections.abc import Iterator

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, fill

from cordwood.wire.apis import ApiKey

DELAY_MS = 20_000
CHECKPOINTED_MS = 70_000
"""A checkpoint has come by then: segments behind the last one stay."""


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1).start()
    yield world
    world.kill()


def dropped_files(world: World) -> list[str]:
    return [name for name in world.disk.list("/data/orders-0") if name.endswith(".deleted")]


def test_the_files_of_deleted_records_go_after_the_delay(world: World) -> None:
    create_topic(world, segment_bytes="150", file_delete_delay_ms=str(DELAY_MS))
    fill(world, "orders", *[bytes(100)] * 3)
    world.advance(CHECKPOINTED_MS)
    entry = {"name": "orders", "partitions": [{"partition_index": 0, "offset": 2}]}
    world.ask(ApiKey.DELETE_RECORDS, 2, topics=[entry], timeout_ms=1000)
    world.advance(DELAY_MS - 1000)
    assert dropped_files(world) != []
    world.advance(2000)
    assert dropped_files(world) == []


def test_the_files_that_retention_drops_go_after_the_delay(world: World) -> None:
    create_topic(world, segment_bytes="150", file_delete_delay_ms=str(DELAY_MS), retention_bytes="200")
    fill(world, "orders", *[bytes(100)] * 4)
    while not dropped_files(world):
        world.advance(1000)
    world.advance(DELAY_MS + 1000)
    assert dropped_files(world) == []


def test_the_files_that_compaction_replaces_go_after_the_delay(world: World) -> None:
    create_topic(
        world,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0",
        segment_bytes="150",
        file_delete_delay_ms=str(DELAY_MS),
    )
    fill(world, "orders", *[bytes(100)] * 4)
    while not dropped_files(world):
        world.advance(1000)
    world.advance(DELAY_MS + 1000)
    assert dropped_files(world) == []

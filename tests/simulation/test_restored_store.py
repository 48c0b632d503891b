"""A metadata store that was restored from an older copy is refused by every broker that has seen more."""

import pytest

from cordwood.cluster.stores.feed import CommitFeed
from cordwood.cluster.stores.interface import StoreUnavailable, StoreWentBack
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.simulation.world import World
from cordwood.wire.apis import ApiKey


def copy_of(store: MemoryStore, world: World) -> MemoryStore:
    """A backup of the store, with the revision at which it was taken."""
    copy = MemoryStore(boot_ms=lambda: world.clock.boot_ms)
    copy._items = dict(store._items)
    copy._feed = CommitFeed(store._feed.revision, 2**31)
    return copy


def test_brokers_end_when_the_store_goes_back_to_an_older_copy() -> None:
    world = World(seed=1, machines=3, clustered=True).start()
    world.advance(3000)
    backup = copy_of(world.store, world)
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 3}
    created = world.ask_at(1, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000)
    assert created.topics[0].error_code == 0
    world.advance(3000)
    lost, world.store = world.store, backup
    for machine in world.machines:
        assert machine.life is not None
        machine.life.store._store = backup
    lost._feed.close(StoreUnavailable("the store is restored"))
    refused = set[int]()
    while len(refused) < len(world.machines):
        with pytest.raises(StoreWentBack, match="restored from an older copy"):
            world.advance(30_000)
        for machine in world.machines:
            if machine.life is not None and machine.life.failure is not None:
                refused.add(machine.broker_id)
                machine.kill()
    assert refused == {1, 2, 3}

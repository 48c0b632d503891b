"""Replicas that are being moved are throttled on either side; replicas in sync never are."""

import pytest
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import (
    ROUND_MS,
    begin_produce,
    create,
    elect,
    image,
    log,
    others,
    told,
)

from cordwood.wire.apis import ApiKey

RATE = 2_000
BROKER = 4
BATCHES, BATCH_BYTES = 60, 1_000


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_listed_replica_outside_of_the_in_sync_set_catches_up_no_faster_than_the_rate(side: str) -> None:
    settings = {"replica.fetch.max.bytes": "1024", f"{side}.replication.throttled.rate": str(RATE)}
    world = World(seed=1, settings=settings, machines=3).start()
    world.settle()
    leader = create(world, **{f"{side}_replication_throttled_replicas": "*"})
    in_sync, moved = others(leader)
    world.machine_of(moved).kill()
    elect(world, leader, isr=(leader, in_sync))
    for number in range(BATCHES):
        produced = begin_produce(world, leader, bytes([number]) * BATCH_BYTES)
        world.advance(1)
        assert told(produced) == "NONE", "the replica in sync is not throttled"
    end = log(world, leader).offsets.end
    world.machine_of(moved).start()
    seconds = 10
    world.advance(seconds * 1000)
    caught_up = log(world, moved).offsets.end
    burst = RATE + 2 * BATCH_BYTES
    assert RATE * seconds // 2 < caught_up * BATCH_BYTES < RATE * seconds + burst
    assert moved not in image(world).isr
    world.advance(BATCHES * BATCH_BYTES * 1000 // RATE + 10 * ROUND_MS)
    assert log(world, moved).offsets.end == end
    world.kill()


def test_the_rates_can_be_changed_while_the_broker_runs() -> None:
    world = World(seed=1, machines=1).start()
    world.settle()
    for name in ("leader.replication.throttled.rate", "follower.replication.throttled.rate"):
        change = {"name": name, "config_operation": 0, "value": "5000"}
        resource = {"resource_type": BROKER, "resource_name": "1", "configs": [change]}
        (answer,) = world.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False).responses
        assert answer.error_code == 0, answer.error_message
    settings = world.machine_of(1).node.settings
    assert (settings.leader_replication_throttled_rate, settings.follower_replication_throttled_rate) == (5000, 5000)
    world.kill()

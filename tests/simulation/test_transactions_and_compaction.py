"""Compaction of a topic with transactions: what was aborted never takes the place of what holds."""

from simulation.transaction_game import SETTINGS
from simulation.workloads.transactional_writers import TOPIC
from simulation.world.world import World
from tests.simulation.one_producer import Producer, position

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey


def test_a_position_that_was_aborted_later_does_not_outlive_the_one_that_holds() -> None:
    """The aborted record is in a closed segment, its marker in the one that is written to."""
    world = World(1, {**SETTINGS, "offsets.topic.num.partitions": "1", "log.cleaner.min.cleanable.ratio": "0.01"})
    world.start()
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
    assert world.ask(ApiKey.CREATE_TOPICS, 4, topics=[topic], timeout_ms=1000).topics[0].error_code == 0
    producer = Producer(world)
    for number in range(100):
        assert producer.move(number) is ErrorCode.NONE
        assert producer.end(commit=True) is ErrorCode.NONE
        assert producer.move(1000) is ErrorCode.NONE
        partition = world.node.hosted.topics["__consumer_offsets"][0]
        partition.replica.log.roll_if_due(world.clock.wall_ms + 365 * 86_400_000)
        assert producer.end(commit=False) is ErrorCode.NONE
        world.advance(5000)
        if number % 10 == 9:
            world.stop()
            world.start()
            assert position(world, require_stable=True) == (number, ErrorCode.NONE)

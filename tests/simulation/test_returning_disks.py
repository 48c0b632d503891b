"""A broker starts without its disk (not mounted), and gets the disk back: its only replicas serve again."""

import logging
from collections.abc import Iterator

import pytest
from simulation.game import FENCES_LIFTED_MS
from simulation.world.disk import SimulatedDisk
from simulation.world.machine import Machine
from simulation.world.world import World
from tests.simulation.test_restored_store import write

from cordwood.wire.apis import ApiKey

TOPIC = "orders"
LONG_MS = 12_000


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, machines=3, clustered=True).start()
    world.advance(FENCES_LIFTED_MS)
    yield world
    world.kill()


def create(world: World, *replicas: int, **configs: str) -> None:
    topic = {
        "name": TOPIC,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": list(replicas)}],
        "configs": [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()],
    }
    created = world.ask_at(1, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000)
    assert created.topics[0].error_code == 0, created
    world.advance(FENCES_LIFTED_MS)


class Shelf:
    """Disks that were taken out of machines."""

    def __init__(self) -> None:
        self._of: dict[int, dict[str, object]] = {}

    def unmount(self, machine: Machine) -> None:
        machine.kill()
        self._of[machine.broker_id] = {name: getattr(machine.disk, name) for name in PARTS}
        machine.replace_disk()

    def mount(self, machine: Machine) -> None:
        machine.kill()
        for name, value in self._of[machine.broker_id].items():
            setattr(machine.disk, name, value)


PARTS = ("platter", "platter_witness", "platter_epochs", "loss_not_noted")
assert all(hasattr(SimulatedDisk(1), name) for name in PARTS)


def restart(world: World, *machines: Machine) -> None:
    for machine in machines:
        machine.start()
    world.advance(LONG_MS)


def leader_and_end(world: World, broker_id: int) -> tuple[int, int]:
    node = world.machine_of(broker_id).node
    partition = node.hosted.get(TOPIC, 0)
    return node.image.topics[TOPIC].partitions[0].leader, -1 if partition is None else partition.log.offsets.end


@pytest.mark.parametrize("replicas", [(3,), (3, 2)])
def test_a_disk_that_was_not_mounted_is_taken_back(world: World, replicas: tuple[int, ...]) -> None:
    create(world, *replicas)
    write(world, TOPIC, b"on the disk")
    machines, shelf = [world.machine_of(broker_id) for broker_id in replicas], Shelf()
    for machine in machines:
        shelf.unmount(machine)
    restart(world, *machines)
    assert leader_and_end(world, 3) == (-1, 0)
    shelf.mount(machines[0])
    restart(world, machines[0])
    assert leader_and_end(world, 3) == (3, 1)
    write(world, TOPIC, b"goes on")
    world.advance(LONG_MS)
    assert {leader_and_end(world, broker_id) for broker_id in replicas} == {(3, 2)}


def test_a_disk_that_is_back_is_not_taken_after_its_loss_was_accepted(world: World) -> None:
    create(world, 3)
    write(world, TOPIC, b"given up")
    machine, shelf = world.machine_of(3), Shelf()
    shelf.unmount(machine)
    restart(world, machine)
    life = world.machine_of(1).life
    assert life is not None
    life.loop.create_task(life.metadata_writer.accept_loss(TOPIC, 0))
    world.advance(LONG_MS)
    write(world, TOPIC, b"of the new disk")
    write(world, TOPIC, b"of the new disk")
    new = Shelf()
    new.unmount(machine)
    shelf.mount(machine)
    restart(world, machine)
    assert leader_and_end(world, 3) == (-1, 1)
    new.mount(machine)
    restart(world, machine)
    assert leader_and_end(world, 3) == (3, 2)


def test_a_broker_on_an_empty_disk_and_the_controller_say_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    create(world, 3)
    machine = world.machine_of(3)
    with caplog.at_level(logging.ERROR):
        Shelf().unmount(machine)
        restart(world, machine)
    assert "broker 3 takes part with another data directory than before" in caplog.text
    assert "no replica is left that has every record of orders-0" in caplog.text

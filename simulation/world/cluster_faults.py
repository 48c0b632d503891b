"""Faults of a world of several machines: pauses, cuts one way and both ways, connections that break, full disks.

Every fault ends by itself, after a time of the world's clock.
"""

import random
from collections.abc import Sequence
from functools import partial

from cordwood.cluster.metadata.known_epochs import behind
from cordwood.cluster.stores.memory import MemoryStore
from simulation.world.links import CLIENTS, STORE
from simulation.world.machine import Machine
from simulation.world.world import World

PAUSES_MS = (50, 500, 2500, 5000, 12_000)
"""Durations of faults: some are longer than a session, some longer than a lease."""
CUTS_MS = (20, 200, 1500, 5000, 9000)
RESTORES_MS = (500, 3000, 9000)
FULL_MS = (200, 3000, 12_000)


def strike(world: World, chance: random.Random, machine: Machine) -> str:
    """Lets one of the faults strike at a machine; returns a line for the transcript."""
    match chance.randrange(5):
        case 0 | 1:
            return pause(world, chance, machine)
        case 2:
            return cut(world, chance, machine, CLIENTS)
        case 3:
            return cut(world, chance, machine, STORE)
        case _:
            return break_connection(chance, machine)


def end_all(world: World) -> None:
    """Ends all faults at once."""
    world.links.heal_all()
    world.put_back()
    for machine in world.machines:
        machine.resume()
        _free(machine)


def pause(world: World, chance: random.Random, machine: Machine) -> str:
    if machine.paused or machine.life is None:
        return f"{machine} stands still as it is"
    lasts_ms, frozen = chance.choice(PAUSES_MS), chance.random() < 0.3
    machine.pause(clock_stands_still=frozen)
    if chance.random() < 0.5:
        machine.life.store.take_next_call()
    world.later(lasts_ms, machine.resume)
    return f"{machine} is paused for {lasts_ms} ms" + (", and so is its clock" if frozen else "")


def cut(world: World, chance: random.Random, machine: Machine, other: int) -> str:
    """Cuts the links between a machine and clients, the store or another broker, one way or both ways, for a while."""
    there, back = (machine.broker_id, other), (other, machine.broker_id)
    ways = chance.choice(((there,), (back,), (there, back)))
    lasts_ms, breaks = chance.choice(CUTS_MS), chance.random() < 0.5
    for way in ways:
        world.links.cut(*way)
    world.later(lasts_ms, partial(_heal, world, machine, ways, breaks))
    return f"the links {ways} are cut for {lasts_ms} ms"


def restore(world: World, chance: random.Random, copies: Sequence[MemoryStore]) -> str:
    """Replaces the store for a while by a copy that is older than the state that every broker has seen. If every broker
    knows later epochs, the copy has a higher revision than the store ever had, and no history."""
    seen = [each.disk.platter_witness for each in world.machines]
    oldest = min((-1 if each is None else each.revision for each in seen), default=-1)
    older = [copy for copy in copies if copy._feed.revision < oldest]
    if not older or world.restored is not None:
        return "there is no older copy of the store"
    copy, lasts_ms = chance.choice(older), chance.choice(RESTORES_MS)
    known = [each.disk.platter_epochs for each in world.machines]
    if all(each is not None and behind(each, copy._items.values()) is not None for each in known):
        copy = world.bumped(copy)
    world.restore(copy)
    world.later(lasts_ms, world.put_back)
    return f"the store is restored at revision {copy._feed.revision} for {lasts_ms} ms"


def fill_disk(world: World, chance: random.Random, machine: Machine) -> str:
    """Leaves little or no space for appends, for a while."""
    left_bytes, lasts_ms = chance.choice((0, 0, 300, 5000)), chance.choice(FULL_MS)
    machine.disk.platter.free_for_appends = left_bytes
    world.later(lasts_ms, partial(_free, machine))
    return f"the disk of {machine} has space for {left_bytes} bytes, for {lasts_ms} ms"


def _free(machine: Machine) -> None:
    machine.disk.platter.free_for_appends = None


def _heal(world: World, machine: Machine, ways: tuple[tuple[int, int], ...], breaks: bool) -> None:
    for way in ways:
        world.links.heal(*way)
    if breaks and machine.life is not None and any(STORE in way for way in ways):
        machine.life.store.break_watch()


def break_connection(chance: random.Random, machine: Machine) -> str:
    connections = [connection for connection in machine.network.connections if connection.open]
    if not connections:
        return f"{machine} has no connection that could break"
    connection = chance.choice(connections)
    connection.hung_up()
    return f"connection {connection.connection_id} to {machine} breaks"

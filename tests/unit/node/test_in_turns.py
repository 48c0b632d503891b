"""Pieces of work that take long: however long, the loop turns between two of them."""

from functools import partial

from simulation.world.world import World

from cordwood.model.moment import Moment
from cordwood.node.loop.in_turns import InTurns


def test_each_piece_has_a_turn_of_its_own_however_long_they_take(world: World) -> None:
    done: list[tuple[str, int]] = []
    in_turns = InTurns(world.node.loop.timers, world.node.loop.effects.wake, lambda: world.node.now)

    def piece(name: str, now: Moment) -> None:
        done.append((name, now.boot_ms))
        world.clock.advance(50)
        if name == "first":
            in_turns.add(partial(piece, "last"))

    started_ms = world.clock.boot_ms
    for name in ("first", "second", "third"):
        in_turns.add(partial(piece, name))
    world.settle()
    assert done == [(name, started_ms + 50 * place) for place, name in enumerate(("first", "second", "third", "last"))]
    in_turns.add(partial(piece, "again"))
    world.settle()
    assert len(done) == 5

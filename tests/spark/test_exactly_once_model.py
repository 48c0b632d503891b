"""Every order of events in a small world, and random ones in a larger: each micro-batch is visible once, whole, or not
yet."""

import random

import pytest
from tests.spark.exactly_once_model import (
    Bounds,
    Coordinator,
    Protocol,
    SlotState,
    World,
    first,
    named_winners,
    steps,
    wrong_with,
)

from cordwood.spark.sink.protocol import Slot, TaskReport

pytestmark = pytest.mark.landing

Trace = tuple[str, ...]


def explore(bounds: Bounds, protocol: Protocol) -> tuple[int, Trace | None]:
    """The number of worlds, and the shortest way to a wrong one."""
    start = first(bounds)
    came_from: dict[World, tuple[World, str] | None] = {start: None}
    frontier = [start]
    while frontier:
        following: list[World] = []
        for world in frontier:
            for label, after in steps(world, bounds, protocol):
                if after in came_from:
                    continue
                came_from[after] = (world, label)
                wrong = wrong_with(after, bounds)
                if wrong is not None:
                    return len(came_from), _way_to(after, came_from, wrong)
                following.append(after)
        frontier = following
    return len(came_from), None


def _way_to(world: World, came_from: dict[World, tuple[World, str] | None], wrong: str) -> Trace:
    labels = [wrong]
    while (back := came_from[world]) is not None:
        world, label = back
        labels.append(label)
    return tuple(reversed(labels))


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(tasks=1, batches=1, runs=2, repeats=1, timeouts=0),
        Bounds(tasks=1, batches=2, runs=2, repeats=0, timeouts=1),
        Bounds(tasks=2, batches=1, runs=2, repeats=0, timeouts=0),
        Bounds(tasks=2, batches=1, runs=1, repeats=1, timeouts=1),
    ],
    ids=str,
)
def test_in_every_order_of_events_a_batch_is_visible_once_and_whole(bounds: Bounds) -> None:
    worlds, trace = explore(bounds, Protocol())
    assert trace is None, "\n".join(trace)
    assert worlds > 1000, "too small a world to say anything"


def is_mishap(label: str) -> bool:
    words = ("killed", "dies", "second driver", "times out", "fails", "repeats", "not hear", "told it failed")
    return any(word in label for word in words)


def test_in_long_random_stories_a_batch_is_visible_once_and_whole() -> None:
    bounds = Bounds(tasks=3, batches=3, runs=4, repeats=3, timeouts=2)
    finished = 0
    for seed in range(300):
        chance = random.Random(seed)
        world = first(bounds)
        for _ in range(400):
            choices = list(steps(world, bounds, Protocol()))
            if not choices:
                break
            label, world = chance.choices(choices, [0.05 if is_mishap(label) else 1 for label, _ in choices])[0]
            wrong = wrong_with(world, bounds)
            assert wrong is None, f"seed {seed}, after {label!r}: {wrong}"
        finished += world.logged == bounds.batches - 1
    assert finished > 100, "hardly any story came to its end"


def all_that_is_open(reports: tuple[TaskReport | None, ...], batch: int, coordinator: Coordinator) -> tuple[Slot, ...]:
    """A wrong protocol: commits everything that the family has open."""
    return tuple(
        Slot(f"slot/{number}", number, slot.epoch)
        for number, slot in enumerate(coordinator.slots)
        if slot.state is SlotState.OPEN
    )


def whoever_has_the_slot_now(
    reports: tuple[TaskReport | None, ...], batch: int, coordinator: Coordinator
) -> tuple[Slot, ...]:
    """A wrong protocol: names slots without the epochs in which they were written."""
    named = named_winners(reports, batch, coordinator)
    return tuple(slot._replace(producer_epoch=coordinator.slots[slot.producer_id].epoch) for slot in named)


@pytest.mark.parametrize(
    "mistake",
    [
        Protocol(winners=all_that_is_open),
        Protocol(winners=whoever_has_the_slot_now),
        Protocol(coordinator_remembers=False, zombies=False),
    ],
    ids=["winners are not named", "epochs are not named", "the coordinator forgets"],
)
def test_the_search_finds_what_is_wrong_with_other_protocols(mistake: Protocol) -> None:
    _, trace = explore(Bounds(tasks=1, batches=1, runs=2, repeats=1, timeouts=1), mistake)
    assert trace is not None
    assert "visible" in trace[-1]

"""One question to both systems, as a run of the benchmarks takes it."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.bench import Bench


@dataclass(frozen=True)
class Scenario:
    """One question to both systems.

    `quick_s` is its share of a quick run; beyond it only one round is made. `own_brokers`: it starts brokers itself,
    and no other may run beside them.
    """

    name: str
    title: str
    run: Callable[[Bench], None]
    quick_s: float
    own_brokers: bool = False

"""The weather of a game about replication: the faults that strike, and their frequency."""

import random
from dataclasses import dataclass

from simulation.game import STARTS_AGAIN

FAULTS = (
    "kill",
    "die within",
    "power",
    "power of several",
    "power of all",
    "clean stop",
    "replaced disk",
    "disk of one and power of all",
    "slow disk",
    "clock",
    "pause",
    "cut between brokers",
    "cut off from all brokers",
    "cut from the store",
    "cut from clients",
    "broken connection",
    "restored store",
    "full disk",
)
OF_ROT = ("bit rot",) * 10
"""Rot strikes often: most segments are too young to rot, or have no sound copy among the faults."""


@dataclass(frozen=True)
class Weather:
    """The faults of one game and their rate. Most games leave most faults out."""

    faults: tuple[str, ...]
    rate: float
    eagerness: float
    deletes: bool
    store_fails: float
    starts_again: float = STARTS_AGAIN
    """The probability in a step that a broker that is down starts again."""
    moves: bool = False
    """True if partitions are moved to other replicas."""
    near: bool = False
    """True if brokers are in racks, and readers read from followers."""
    rots: bool = False
    """True if bytes rot on disks, and brokers scrub and repair their logs."""

    @classmethod
    def chosen_by(cls, chance: random.Random, *, near: bool = False, rots: bool = False) -> "Weather":
        faults = [name for name in FAULTS if chance.random() < 0.5]
        return cls(
            (*(faults or ["kill"]), *(OF_ROT if rots else ())),
            chance.choice((0.003, 0.01, 0.03)),
            chance.choice((0.75, 0.85, 0.95)),
            chance.random() < 0.4,
            chance.choice((0.0, 0.05, 0.2)),
            chance.choice((STARTS_AGAIN, STARTS_AGAIN, 0.01)),
            chance.random() < 0.4,
            near,
            rots,
        )

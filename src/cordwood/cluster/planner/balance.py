"""Plans moves of replicas: to empty a broker, or to give a topic more replicas. Pure functions.

A replica goes to the broker that has the fewest replicas of its topic, then to the one with the least load: the bytes
of its replicas, plus a little for each replica, so that empty partitions are spread as well. No two replicas of a
partition are on one broker, and they are in as many racks as possible. `rebalancing` evens out existing replicas.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

REPLICA_WEIGHT: Final = 1 << 20
"""The weight of a replica beside its bytes."""

Key = tuple[str, int]
"""A topic and the number of a partition."""


class Placed(NamedTuple):
    """A partition, its replicas with the preferred leader first, and its weight."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    size_bytes: int = 0
    traffic: float = 0.0
    """Bytes per second that are written to it."""

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def weight(self) -> int:
        return self.size_bytes + REPLICA_WEIGHT


class PlannedMove(NamedTuple):
    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    size_bytes: int
    """Bytes that are copied: those of one replica, for each new broker."""

    @property
    def key(self) -> Key:
        return self.topic, self.partition


class NoPlace(Exception):
    """A partition has replicas that no other broker can take; the message says why."""


def rack_names(racks: Mapping[int, str | None]) -> Callable[[int], str]:
    """Returns the rack of a broker. A broker without a rack counts as a rack by itself."""
    names = {broker: f"rack {rack}" for broker, rack in racks.items() if rack is not None}
    return lambda broker: names.get(broker) or f"broker {broker}"


@dataclass
class _Loads:
    """The loads of the brokers while a plan is made."""

    racks: Mapping[int, str | None]
    """The brokers that can get replicas."""
    cordoned: Collection[int] = ()
    """The brokers that could get replicas if they were not cordoned."""
    weight: Counter[int] = field(default_factory=Counter)
    replicas: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By topic and broker."""
    leads: Counter[tuple[str, int]] = field(default_factory=Counter)
    all_leads: Counter[int] = field(default_factory=Counter)

    @classmethod
    def of(cls, partitions: Iterable[Placed], racks: Mapping[int, str | None], cordoned: Collection[int]) -> "_Loads":
        loads = cls(racks, cordoned)
        for each in partitions:
            for position, broker in enumerate(each.replicas):
                loads.carry(each, broker, position)
        return loads

    def carry(self, partition: Placed, broker: int, position: int) -> None:
        self.weight[broker] += partition.weight
        self.replicas[partition.topic, broker] += 1
        self.leads[partition.topic, broker] += position == 0
        self.all_leads[broker] += position == 0

    def best_place(self, partition: Placed, others: Collection[int], position: int) -> int:
        """The broker that gets the replica, beside those on `others`. Raises NoPlace."""
        free = [broker for broker in self.racks if broker not in others]
        if not free:
            raise NoPlace(
                f"{partition.topic}-{partition.partition} needs {len(others) + 1} brokers for its replicas, and only "
                f"{len(self.racks)} can take them ({', '.join(map(str, sorted(self.racks)))}): "
                f"{_uncordon_in_words(set(self.cordoned).difference(others))}add a broker, or give the topic fewer "
                "replicas first"
            )
        rack_of = rack_names(self.racks)
        used = {rack_of(broker) for broker in others}

        def fullness(broker: int) -> tuple[bool, int, int, int, int, int]:
            of_topic = partition.topic, broker
            leads = (self.leads[of_topic], self.all_leads[broker]) if position == 0 else (0, 0)
            return rack_of(broker) in used, self.replicas[of_topic], *leads, self.weight[broker], broker

        return min(free, key=fullness)


def _uncordon_in_words(cordoned: Iterable[int]) -> str:
    ids = sorted(cordoned)
    if not ids:
        return ""
    names = f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"
    return f"uncordon {names} (`cordwood cluster uncordon {' '.join(map(str, ids))}`), "


def plan_drain(
    partitions: Collection[Placed],
    racks: Mapping[int, str | None],
    leaving: Collection[int],
    cordoned: Collection[int] = (),
) -> list[PlannedMove]:
    """Moves everything away from the leaving brokers. `racks` has the brokers that can get replicas: those that serve
    and are not cordoned. The refusal names brokers of `cordoned` that would help. Raises NoPlace."""
    staying = {broker: rack for broker, rack in racks.items() if broker not in leaving}
    loads = _Loads.of(partitions, staying, set(cordoned).difference(leaving))
    moves = []
    for each in sorted(partitions, key=lambda partition: -partition.weight):
        replicas = list(each.replicas)
        for position, broker in enumerate(each.replicas):
            if broker in leaving:
                replicas[position] = loads.best_place(each, [b for b in replicas if b != broker], position)
                loads.carry(each, replicas[position], position)
        if tuple(replicas) != each.replicas:
            moves.append(planned_move(each, tuple(replicas)))
    return moves


def plan_factor(
    partitions: Collection[Placed],
    racks: Mapping[int, str | None],
    chosen: Iterable[Placed],
    factor: int,
    cordoned: Collection[int] = (),
) -> list[Placed]:
    """The chosen partitions with this number of replicas: new ones on the emptiest brokers; the last ones are removed
    first. The refusal names brokers of `cordoned` that would help. Raises NoPlace."""
    loads = _Loads.of(partitions, racks, cordoned)
    after = []
    for each in chosen:
        replicas = list(each.replicas[:factor])
        while len(replicas) < factor:
            broker = loads.best_place(each, replicas, len(replicas))
            loads.carry(each, broker, len(replicas))
            replicas.append(broker)
        after.append(each._replace(replicas=tuple(replicas)))
    return after


def planned_move(partition: Placed, after: tuple[int, ...]) -> PlannedMove:
    new = sum(broker not in partition.replicas for broker in after)
    return PlannedMove(partition.topic, partition.partition, partition.replicas, after, new * partition.size_bytes)


def after_moves(partitions: Iterable[Placed], moves: Iterable[PlannedMove]) -> list[Placed]:
    """The partitions as a plan leaves them."""
    targets = {(move.topic, move.partition): move.after for move in moves}
    return [each._replace(replicas=targets.get((each.topic, each.partition), each.replicas)) for each in partitions]


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    replicas: int = 0
    leads: int = 0
    size_bytes: int = 0
    traffic: float = 0.0


def loads_of(partitions: Iterable[Placed], brokers: Iterable[int]) -> dict[int, BrokerLoad]:
    """The load of each broker: for people who compare before and after."""
    loads = {broker: BrokerLoad() for broker in brokers}
    for each in partitions:
        for position, broker in enumerate(each.replicas):
            load = loads.get(broker, BrokerLoad())
            loads[broker] = replace(
                load,
                replicas=load.replicas + 1,
                leads=load.leads + (position == 0),
                size_bytes=load.size_bytes + each.size_bytes,
                traffic=load.traffic + (each.traffic if position == 0 else 0.0),
            )
    return loads

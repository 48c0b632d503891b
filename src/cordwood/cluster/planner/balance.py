"""Plans which replicas go where: to empty a broker, or to even out the brokers of a cluster. Pure functions.

A broker's load is the bytes of its replicas, plus a little for each replica, so that empty partitions are spread as
well. A move never puts two replicas of a partition on one broker, and never makes a partition have fewer racks. The
leader of a partition at rest is the first of its replicas, so leaderships are evened out by the order of replicas
alone: that moves no bytes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

REPLICA_WEIGHT: Final = 1 << 20
"""What a replica counts beside its bytes."""
TOLERANCE: Final = 0.1
"""Brokers whose loads differ from the mean by less than this share are even enough: more moves cost more than they
bring."""


class Placed(NamedTuple):
    """A partition, its replicas with the preferred leader first, and what it weighs."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    size_bytes: int = 0
    traffic: float = 0.0
    """Bytes per second that are written to it."""

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


class NoPlace(Exception):
    """A partition has replicas that no other broker can take; the message says why."""


@dataclass
class _Loads:
    """What the brokers carry while a plan is made."""

    racks: Mapping[int, str | None]
    bytes_of: dict[int, int] = field(default_factory=dict)
    leads: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, partitions: Iterable[Placed], racks: Mapping[int, str | None]) -> "_Loads":
        loads = cls(racks, dict.fromkeys(racks, 0), dict.fromkeys(racks, 0.0))
        for each in partitions:
            for broker in each.replicas:
                loads.carry(broker, each.weight)
            loads.lead(each.replicas[0], _leading_weight(each))
        return loads

    def carry(self, broker: int, weight: int) -> None:
        if broker in self.bytes_of:
            self.bytes_of[broker] += weight

    def lead(self, broker: int, weight: float) -> None:
        if broker in self.leads:
            self.leads[broker] += weight

    def rack_count(self, replicas: Iterable[int]) -> int:
        return len({self.racks.get(broker) for broker in replicas})


def _leading_weight(partition: Placed) -> float:
    return partition.traffic + 1.0


def plan_drain(
    partitions: Collection[Placed], racks: Mapping[int, str | None], leaving: Collection[int]
) -> list[PlannedMove]:
    """Moves everything away from the leaving brokers. `racks` has all live brokers. Raises NoPlace."""
    staying = {broker: rack for broker, rack in racks.items() if broker not in leaving}
    loads = _Loads.of(partitions, staying)
    moves = []
    for each in sorted(partitions, key=lambda partition: -partition.weight):
        replicas = list(each.replicas)
        for position, broker in enumerate(each.replicas):
            if broker in leaving:
                others = [other for other in replicas if other != broker]
                successor = _best_place(loads, each, others, staying)
                replicas[position] = successor
                loads.carry(successor, each.weight)
                if position == 0:
                    loads.lead(successor, _leading_weight(each))
        if tuple(replicas) != each.replicas:
            moves.append(_move(each, tuple(replicas)))
    return moves


def plan_factor(
    partitions: Collection[Placed], racks: Mapping[int, str | None], chosen: Iterable[Placed], factor: int
) -> list[Placed]:
    """The chosen partitions with this number of replicas: new ones on the emptiest brokers, the last ones go first.
    Raises NoPlace."""
    loads = _Loads.of(partitions, racks)
    after = []
    for each in chosen:
        replicas = list(each.replicas[:factor])
        while len(replicas) < factor:
            broker = _best_place(loads, each, replicas, racks)
            replicas.append(broker)
            loads.carry(broker, each.weight)
        after.append(each._replace(replicas=tuple(replicas)))
    return after


def _best_place(loads: _Loads, partition: Placed, others: list[int], among: Collection[int]) -> int:
    free = [broker for broker in among if broker not in others]
    if not free:
        raise NoPlace(
            f"{partition.topic}-{partition.partition} would need more than the {len(among)} brokers that are left for "
            "its replicas: add a broker, or give the topic fewer replicas first"
        )
    return min(free, key=lambda broker: (-loads.rack_count([*others, broker]), loads.bytes_of[broker], broker))


def plan_rebalance(partitions: Collection[Placed], racks: Mapping[int, str | None]) -> list[PlannedMove]:
    """Evens out bytes, replicas and leaderships over the brokers, and racks within each partition."""
    loads = _Loads.of(partitions, racks)
    now = {(each.topic, each.partition): each for each in partitions}
    _spread_over_racks(now, loads)
    _even_out_bytes(now, loads)
    _even_out_leaders(now, loads)
    return [
        _move(each, after.replicas)
        for each in partitions
        if (after := now[each.topic, each.partition]).replicas != each.replicas
    ]


def _spread_over_racks(now: dict[tuple[str, int], Placed], loads: _Loads) -> None:
    """Replaces replicas that share a rack while another rack has none."""
    for key, each in list(now.items()):
        while True:
            best = _better_by_rack(each, loads)
            if best is None:
                break
            now[key] = each = _swapped(each, *best, loads)


def _better_by_rack(partition: Placed, loads: _Loads) -> tuple[int, int] | None:
    racks = loads.rack_count(partition.replicas)
    for broker in reversed(partition.replicas):
        others = [other for other in partition.replicas if other != broker]
        free = [other for other in loads.racks if other not in partition.replicas]
        better = [other for other in free if loads.rack_count([*others, other]) > racks]
        if better:
            return broker, min(better, key=lambda other: (loads.bytes_of[other], other))
    return None


def _even_out_bytes(now: dict[tuple[str, int], Placed], loads: _Loads) -> None:
    if len(loads.bytes_of) < 2:
        return
    mean = sum(loads.bytes_of.values()) / len(loads.bytes_of)
    hosted: dict[int, dict[tuple[str, int], None]] = {broker: {} for broker in loads.bytes_of}
    for key, each in now.items():
        for broker in each.replicas:
            if broker in hosted:
                hosted[broker][key] = None
    stuck: set[tuple[int, int]] = set()
    for _ in range(2 * len(now)):
        chosen = _next_move(now, hosted, mean, loads, stuck)
        if chosen is None:
            return
        key, giver, taker = chosen
        now[key] = _swapped(now[key], giver, taker, loads)
        del hosted[giver][key]
        hosted[taker][key] = None


def _next_move(
    now: Mapping[tuple[str, int], Placed],
    hosted: Mapping[int, Iterable[tuple[str, int]]],
    mean: float,
    loads: _Loads,
    stuck: set[tuple[int, int]],
) -> tuple[tuple[str, int], int, int] | None:
    """A partition that goes from a full broker to an empty one. Racks may forbid every move between the fullest and the
    emptiest broker: then the next pair is tried. `stuck` remembers such pairs."""
    by_load = sorted(loads.bytes_of, key=lambda broker: (loads.bytes_of[broker], broker))
    for giver in reversed(by_load):
        for taker in by_load:
            gap = loads.bytes_of[giver] - loads.bytes_of[taker]
            if gap <= max(TOLERANCE * mean, REPLICA_WEIGHT):
                break
            if (giver, taker) in stuck:
                continue
            excess = min(loads.bytes_of[giver] - mean, mean - loads.bytes_of[taker])
            ideal = excess if excess > 0 else gap / 2
            fitting = _fitting(now, hosted[giver], giver, taker, max(ideal, REPLICA_WEIGHT), loads)
            if fitting is not None:
                return fitting, giver, taker
            stuck.add((giver, taker))
    return None


def _fitting(
    now: Mapping[tuple[str, int], Placed],
    candidates: Iterable[tuple[str, int]],
    giver: int,
    taker: int,
    excess: float,
    loads: _Loads,
) -> tuple[str, int] | None:
    """The partition whose move brings both brokers nearest to the mean; None: no move helps."""
    gap = loads.bytes_of[giver] - loads.bytes_of[taker]
    best, best_distance = None, float("inf")
    for key in candidates:
        each = now[key]
        if taker in each.replicas or each.weight >= gap:
            continue
        after = [taker if broker == giver else broker for broker in each.replicas]
        if loads.rack_count(after) < loads.rack_count(each.replicas):
            continue
        distance = abs(each.weight - excess)
        if distance < best_distance:
            best, best_distance = key, distance
    return best


def _swapped(partition: Placed, giver: int, taker: int, loads: _Loads) -> Placed:
    """The partition with one replica on another broker, and the loads with it."""
    loads.carry(giver, -partition.weight)
    loads.carry(taker, partition.weight)
    if partition.replicas[0] == giver:
        loads.lead(giver, -_leading_weight(partition))
        loads.lead(taker, _leading_weight(partition))
    replicas = tuple(taker if broker == giver else broker for broker in partition.replicas)
    return partition._replace(replicas=replicas)


def _even_out_leaders(now: dict[tuple[str, int], Placed], loads: _Loads) -> None:
    """Puts other replicas first where that evens out who leads."""
    for _ in range(len(now)):
        changed = False
        for key, each in now.items():
            leader = each.replicas[0]
            weight = _leading_weight(each)
            if leader not in loads.leads:
                continue
            best = min(
                (broker for broker in each.replicas if broker in loads.leads),
                key=lambda broker: (loads.leads[broker], broker),
            )
            if loads.leads[leader] - loads.leads[best] > weight:
                now[key] = each._replace(replicas=(best, *(other for other in each.replicas if other != best)))
                loads.lead(leader, -weight)
                loads.lead(best, weight)
                changed = True
        if not changed:
            return


def _move(partition: Placed, after: tuple[int, ...]) -> PlannedMove:
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
    """What each broker has: for people who compare before and after."""
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

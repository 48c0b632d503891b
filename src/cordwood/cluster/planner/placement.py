"""Places partitions on brokers."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from math import lcm
from types import MappingProxyType
from typing import Final, NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.errors import ErrorCode, ProtocolError

_USUAL_REPLICAS: Final = 3
"""With three replicas and min.insync.replicas 2, a topic takes records while any one broker is away."""


class Assignment(NamedTuple):
    """The brokers that a client wants for a partition; the first broker leads."""

    partition: int
    brokers: tuple[int, ...]


def placeable(image: ClusterImage) -> dict[int, str | None]:
    """The brokers that can be in-sync replicas of new partitions at once, by id, with their racks."""
    cordoned = image.cordoned_brokers()
    found = image.electable_brokers()
    return {broker_id: image.brokers[broker_id].rack for broker_id in found if broker_id not in cordoned}


def _away(image: ClusterImage) -> dict[int, str | None]:
    """The brokers that took part and are away now, by id, with their racks: they can be replicas of new partitions, and
    get in sync when they are back."""
    away = image.storage_ids.keys() - {*image.electable_brokers(), *image.cordoned_brokers()}
    return {broker_id: member.rack for broker_id, member in image.members.items() if broker_id in away}


def places(image: ClusterImage) -> int:
    """The number of replicas that a new partition can have."""
    live = len(placeable(image))
    return live + len(_away(image)) if live else 0


def default_replicas(image: ClusterImage) -> int:
    """The number of replicas of a new topic that does not say how many. Unless the settings name a number, a cluster of
    several brokers keeps more than one copy: the loss of one disk is then no loss of records."""
    settings = image.settings
    if settings.default_replication_factor:
        return settings.default_replication_factor
    return max(1, min(_USUAL_REPLICAS, places(image), settings.replication_factor_max))


def place_new(image: ClusterImage, partitions: range, replication_factor: int, seed: int) -> list[tuple[int, ...]]:
    """Places new partitions on live brokers, and if these are too few, on members that are away as well, which never
    come first. Raises ProtocolError."""
    live = placeable(image)
    missing = replication_factor - len(live)
    if missing <= 0:
        return place(list(live), partitions, replication_factor, seed, live)
    away = _away(image)
    if not live or missing > len(away):
        raise _too_few(replication_factor, _not_counted(image, {*live, *away} if live else ()))
    placed = place(list(live), partitions, len(live), seed, live)
    turns = _in_turns(away, missing, set(live.values()))
    return [
        (*brokers, *turns[(seed + partition) % len(turns)])
        for partition, brokers in zip(partitions, placed, strict=True)
    ]


def _in_turns(away: Mapping[int, str | None], count: int, used: Collection[str | None]) -> list[tuple[int, ...]]:
    """Choices of this many brokers, in which each broker comes first equally often: those outside of the used racks
    before those within."""
    outside = [broker for broker, rack in away.items() if rack is None or rack not in used]
    within = [broker for broker in away if broker not in outside]
    choices = []
    for turn in range(lcm(max(len(outside), 1), max(len(within), 1))):
        candidates = (*_rotated(outside, turn), *_rotated(within, turn))
        choices.append(_over_racks(candidates, count, away))
    return choices


def _rotated(brokers: Sequence[int], by: int) -> Sequence[int]:
    start = by % len(brokers) if brokers else 0
    return (*brokers[start:], *brokers[:start])


def _not_counted(image: ClusterImage, counted: Collection[int]) -> str:
    """The reason why brokers cannot take replicas, and the remedy."""
    known = list(image.members)
    if len(known) == len(counted):
        return f"only {len(counted)} broker(s) are registered."
    cordoned = [str(broker_id) for broker_id in known if broker_id in image.cordoned_brokers()]
    others = [str(each) for each in known if each not in counted and str(each) not in cordoned]
    words = f"only {len(counted)} broker(s) can take replicas."
    if cordoned:
        words += (
            f" Not counted, since cordoned: {', '.join(cordoned)} (`cordwood cluster uncordon {' '.join(cordoned)}`)."
        )
    if others:
        words += f" Not counted, since they do not take part: {', '.join(others)} (`cordwood cluster status`)."
    return words


def place(
    brokers: Sequence[int],
    partitions: range,
    replication_factor: int,
    seed: int,
    racks: Mapping[int, str | None] = MappingProxyType({}),
) -> list[tuple[int, ...]]:
    """Places partitions: leaders go round the brokers, and so do the followers of each leader: the load of a failed
    broker is spread over all others. The seed comes from the topic's id, so that topics start at different brokers.

    Replicas of a partition are in different racks if there are enough racks. A broker without a rack counts as a rack
    by itself.
    """
    count = len(brokers)
    assert replication_factor <= count, f"{replication_factor} replicas on {count} brokers"
    brokers = _alternating(brokers, racks)
    # The placement repeats itself after this many partitions. Thousands of partitions are placed in one turn of the
    # loop.
    period = count * max(1, count - 1)
    pattern = []
    for partition in partitions[:period]:
        first = (seed + partition) % count
        turn = (seed + partition) // count
        round_trip = ((first + 1 + (turn + step) % (count - 1)) % count for step in range(count - 1))
        candidates = (brokers[index] for index in chain((first,), round_trip))
        pattern.append(_over_racks(candidates, replication_factor, racks))
    return [pattern[place % period] for place in range(len(partitions))]


def _too_few(replication_factor: int, why: str) -> ProtocolError:
    """The refusal of a replication factor, in Kafka's words."""
    return ProtocolError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
        f"{replication_factor} cannot be reached because {why}",
    )


def _alternating(brokers: Sequence[int], racks: Mapping[int, str | None]) -> list[int]:
    """The brokers, with those of one rack as far from each other as possible.

    If brokers of a rack were neighbours, a partition whose next broker is in a used rack would skip to the first broker
    of the next rack: in 10 racks of 10 these first brokers got seven times as many replicas as all others.
    """
    named = [f"broker {broker}" if racks.get(broker) is None else f"rack {racks[broker]}" for broker in brokers]
    sizes = Counter(named)
    seen: Counter[str] = Counter()
    places = []
    for place, (broker, name) in enumerate(zip(brokers, named, strict=True)):
        # From 0 to 1 around the ring: the brokers of each rack stand at even distances.
        places.append(((2 * seen[name] + 1) / sizes[name], place, broker))
        seen[name] += 1
    return [broker for *_, broker in sorted(places)]


def _over_racks(brokers: Iterable[int], replication_factor: int, racks: Mapping[int, str | None]) -> tuple[int, ...]:
    """The first of the brokers, then those in racks that have no replica yet, then others. Mostly the first few brokers
    are enough: a look at all would cost time in proportion to the number of brokers for each partition."""
    chosen: list[int] = []
    used: set[str] = set()
    second: list[int] = []
    for broker in brokers:
        rack = racks.get(broker)
        if rack is not None and rack in used:
            second.append(broker)
            continue
        chosen.append(broker)
        if rack is not None:
            used.add(rack)
        if len(chosen) == replication_factor:
            break
    return tuple((*chosen, *second)[:replication_factor])


def check_assignment(assigned: Sequence[int], brokers: Collection[int], replication_factor: int | None) -> None:
    """Refuses a client's assignment with unknown or repeated brokers, or with another number than
    `replication_factor`."""
    if not assigned:
        reason = "The manual partition assignment includes an empty replica list."
    elif (unknown := next((broker for broker in assigned if broker not in brokers), None)) is not None:
        reason = f"The manual partition assignment includes broker {unknown}, but no such broker is registered."
    elif len(set(assigned)) != len(assigned):
        twice = next(broker for broker in assigned if assigned.count(broker) > 1)
        reason = f"The manual partition assignment includes the broker {twice} more than once."
    elif replication_factor is not None and len(assigned) != replication_factor:
        reason = (
            f"The manual partition assignment includes a partition with {len(assigned)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )
    else:
        return
    raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)

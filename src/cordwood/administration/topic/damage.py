"""The damage that brokers know in a topic: DamageList, an API of Cordwood's own."""

from collections.abc import Mapping
from typing import NamedTuple

from cordwood.administration.asking import Address, ask
from cordwood.model.failure import Failure
from cordwood.wire.apis import ApiKey


class DamageView(NamedTuple):
    """Offsets that the broker refuses to readers, from `first_offset` to `last_offset`."""

    broker: int
    partition: int
    first_offset: int
    last_offset: int
    file: str
    position: int
    reason: str
    found_ms: int
    not_repaired: str
    """The reason why the damage is not repaired from another replica; empty if that is due or under way."""


class RepairView(NamedTuple):
    """Offsets of a broker's replica that were damaged, and were repaired with the batches of other brokers."""

    broker: int
    partition: int
    first_offset: int
    last_offset: int
    from_brokers: tuple[int, ...]
    repaired_ms: int


class Told(NamedTuple):
    """The answers of brokers about damage, sorted by partition and offset."""

    damage: tuple[DamageView, ...] = ()
    repairs: tuple[RepairView, ...] = ()


def known_damage(brokers: Mapping[int, Address], topic: str, timeout_s: float) -> Told:
    """The damage that brokers (by id) know. A broker that does not answer, or without this API, is skipped."""
    found: list[DamageView] = []
    repairs: list[RepairView] = []
    for broker_id, address in brokers.items():
        try:
            answer = ask(address, ApiKey.DAMAGE_LIST, 1, {"topics": [topic]}, timeout_s)
        except Failure:
            continue
        repairs += [
            RepairView(
                broker_id,
                each.partition,
                each.first_offset,
                each.end_offset - 1,
                tuple(each.broker_ids),
                each.repaired_ms,
            )
            for each in answer.repairs
        ]
        found += [
            DamageView(
                broker_id,
                each.partition,
                each.first_offset,
                each.end_offset - 1,
                each.file,
                each.position,
                each.reason,
                each.found_ms,
                each.not_repaired,
            )
            for each in answer.findings
        ]
    return Told(
        tuple(sorted(found, key=lambda each: (each.partition, each.first_offset, each.broker))),
        tuple(sorted(repairs, key=lambda each: (each.partition, each.repaired_ms, each.first_offset))),
    )

"""The damage that brokers know in a topic: DamageList, an API of Cordwood's own."""

from collections.abc import Mapping
from typing import NamedTuple

from cordwood.administration.asking import ask
from cordwood.client.settings import Address
from cordwood.model.failure import Failure
from cordwood.model.timestamps import time_in_words
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

    @property
    def in_words(self) -> str:
        repair = f" Not repaired from another replica: {self.not_repaired}." if self.not_repaired else ""
        return (
            f"partition {self.partition} is damaged on broker {self.broker}: "
            f"offsets {self.first_offset} to {self.last_offset} cannot be read "
            f"({self.file} at byte {self.position}: {self.reason}; found {time_in_words(self.found_ms)}). "
            f"Readers of this broker go on from offset {self.last_offset + 1}.{repair}"
        )


class RepairView(NamedTuple):
    """Offsets of a broker's replica that were damaged, and were repaired with the batches of other brokers."""

    broker: int
    partition: int
    first_offset: int
    last_offset: int
    from_brokers: tuple[int, ...]
    repaired_ms: int

    @property
    def in_words(self) -> str:
        brokers = ", ".join(str(broker) for broker in self.from_brokers)
        return (
            f"partition {self.partition} was damaged on broker {self.broker}: offsets {self.first_offset} to "
            f"{self.last_offset} were repaired from broker {brokers} {time_in_words(self.repaired_ms)}."
        )


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

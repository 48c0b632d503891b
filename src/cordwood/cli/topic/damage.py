"""The damage that brokers know of in a topic: DamageList, an API of Cordwood's own."""

from collections.abc import Iterable
from typing import NamedTuple

from cordwood.cli.failure import Failure
from cordwood.cli.raw_request import Address, ask
from cordwood.wire.apis import ApiKey


class DamageView(NamedTuple):
    """Offsets that the broker refuses to readers, from `first_offset` to `last_offset`."""

    partition: int
    first_offset: int
    last_offset: int
    file: str
    position: int
    reason: str
    found_ms: int


def known_damage(brokers: Iterable[Address], topic: str, timeout_s: float) -> list[DamageView]:
    """Damage, sorted by partition and offset. A broker without this API is skipped."""
    found = []
    for address in brokers:
        try:
            answer = ask(address, ApiKey.DAMAGE_LIST, 0, {"topics": [topic]}, timeout_s)
        except Failure:
            continue
        found += [
            DamageView(
                each.partition,
                each.first_offset,
                each.end_offset - 1,
                each.file,
                each.position,
                each.reason,
                each.found_ms,
            )
            for each in answer.findings
        ]
    return sorted(found)

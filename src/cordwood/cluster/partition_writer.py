"""Writes changes of many partitions: elections and moves that operators ask for, epochs on a restored store.

Many partitions share a transaction. A transaction fails as a whole when one of its partitions was changed meanwhile:
then all of it is planned anew on the newer image and written in smaller transactions.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from cordwood.cluster.authority import ATTEMPTS_ON_ONE_KEY, Authority
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.partitions import partition_row
from cordwood.cluster.metadata.rows import decode_partition
from cordwood.cluster.planner.isr import MOST_COMPARES, GuardedPut, batches, together
from cordwood.cluster.stores.interface import StoreFailure
from cordwood.model.errors import ErrorCode, ProtocolError

PartitionName = tuple[str, int]
"""A topic's name and a partition's number."""

_PLANNED_AT_ONCE: Final = 200
"""Partitions planned in one turn of the loop."""


class PartitionWriter:
    def __init__(self, follower: ImageFollower, authority: Authority) -> None:
        self._follower = follower
        self._image = follower.image
        self._authority = authority

    async def change(
        self, names: Collection[PartitionName], plan: Callable[[PartitionName], GuardedPut | None]
    ) -> dict[PartitionName, ProtocolError | None]:
        """Changes partitions by `plan`, which returns None if there is nothing to do, or raises ProtocolError. Returns
        a refusal or None for each. Raises StoreFailure."""
        outcomes: dict[PartitionName, ProtocolError | None] = {}
        writes: dict[PartitionName, GuardedPut] = {}
        most_compares = MOST_COMPARES
        for _ in range(ATTEMPTS_ON_ONE_KEY):
            tried, writes = writes, {}
            for place, name in enumerate(name for name in dict.fromkeys(names) if name not in outcomes):
                if place % _PLANNED_AT_ONCE == _PLANNED_AT_ONCE - 1:
                    await asyncio.sleep(0)
                if name in tried and self._shows(name, tried[name]):
                    # An attempt whose outcome was unknown came through after all.
                    outcomes[name] = None
                    continue
                try:
                    write = plan(name)
                except ProtocolError as refusal:
                    outcomes[name] = refusal
                    continue
                if write is None:
                    outcomes[name] = None
                else:
                    writes[name] = write
            if not writes:
                return outcomes
            await self._write(writes, most_compares, outcomes)
            if writes.keys() <= outcomes.keys():
                return outcomes
            most_compares = max(most_compares // 4, 4)
            await self._authority.check()
        unknown = ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "Other requests kept changing the partition: try again.")
        return {name: outcomes.get(name, unknown) for name in names}

    async def raise_epochs(self, known: Mapping[PartitionName, int]) -> None:
        """Raises leader epochs above those in logs, on a store that may be an older copy. Raises StoreFailure."""
        from cordwood.cluster.planner.restored import plan_later_epoch

        outcomes = await self.change(known, lambda name: plan_later_epoch(self._image, *name, known[name]))
        if refused := [refusal for refusal in outcomes.values() if refusal is not None]:
            raise StoreFailure(f"the leader epochs of {len(refused)} partitions cannot be raised: {refused[0].message}")

    async def _write(
        self,
        writes: dict[PartitionName, GuardedPut],
        most_compares: int,
        outcomes: dict[PartitionName, ProtocolError | None],
    ) -> None:
        name_of = {write.put.key: name for name, write in writes.items()}
        groups = list(batches(writes.values(), most_compares))
        results = await asyncio.gather(
            *(self._authority.attempt(together(group)) for group in groups), return_exceptions=True
        )
        revision = 0
        for group, result in zip(groups, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            revision = max(revision, result.revision)
            if result.succeeded:
                outcomes.update((name_of[write.put.key], None) for write in group)
        await self._follower.reach(revision)

    def _shows(self, name: PartitionName, write: GuardedPut) -> bool:
        """True if the image shows the row that was to be written."""
        found = self._image.partition_of(*name)
        return found is not None and partition_row(found) == decode_partition(write.put.value)

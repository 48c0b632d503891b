"""Writes the in-sync sets of partitions that this broker leads, many partitions in one transaction.

A transaction fails as a whole: its halves are tried again, so one stale change does not hold up the others. After an
unknown outcome the partitions are read, and the change of a partition that is as before is written again: both
transactions compare the partition's revision, so at most one of them happens.
"""

import asyncio
from collections.abc import Sequence

from cordwood.cluster.authority import ATTEMPTS_ON_ONE_KEY, Authority
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.planner.isr import GuardedPut, IsrChange, IsrOutcome, batches, plan_isr_change, together
from cordwood.cluster.stores.interface import MetadataStore, OutcomeUnknown, StoreFailure, holds
from cordwood.model.identifiers import TopicId


class IsrWriter:
    def __init__(self, store: MetadataStore, follower: ImageFollower, authority: Authority) -> None:
        self._store = store
        self._follower = follower
        self._authority = authority

    async def change(self, changes: Sequence[IsrChange]) -> dict[tuple[TopicId, int], IsrOutcome]:
        """Outcomes by topic id and partition. Returns when the image has all changes that were applied."""
        outcomes: dict[tuple[TopicId, int], IsrOutcome] = {}
        writes: dict[GuardedPut, tuple[TopicId, int]] = {}
        for change in changes:
            of = (change.topic_id, change.partition)
            assert of not in outcomes, f"two changes of the ISR of partition {change.partition} at once"
            outcomes[of] = IsrOutcome.REFUSED
            write = plan_isr_change(self._follower.image, self._authority.broker_epoch, change)
            if write is not None:
                writes[write] = of
        revisions = [0]
        for results in await asyncio.gather(*(self._write(batch, revisions) for batch in batches(writes))):
            outcomes |= {writes[write]: outcome for write, outcome in results.items()}
        if max(revisions):
            await self._follower.reach(max(revisions))
        return outcomes

    async def _write(self, batch: Sequence[GuardedPut], revisions: list[int]) -> dict[GuardedPut, IsrOutcome]:
        """Writes a batch, or the part of it whose comparisons hold. Notes the store's revisions."""
        try:
            result = await self._authority.transact(together(batch))
        except OutcomeUnknown:
            decided = await asyncio.gather(*(self._decide(write, revisions) for write in batch))
            return dict(zip(batch, decided, strict=True))
        except StoreFailure:
            return dict.fromkeys(batch, IsrOutcome.REFUSED)
        revisions.append(result.revision)
        if result.succeeded:
            return dict.fromkeys(batch, IsrOutcome.APPLIED)
        if len(batch) == 1:
            return {batch[0]: IsrOutcome.REFUSED}
        middle = len(batch) // 2
        halves = await asyncio.gather(self._write(batch[:middle], revisions), self._write(batch[middle:], revisions))
        return halves[0] | halves[1]

    async def _decide(self, write: GuardedPut, revisions: list[int]) -> IsrOutcome:
        """The outcome of a write that may have happened."""
        unchanged = write.compares[0]
        refused = False
        for _ in range(ATTEMPTS_ON_ONE_KEY):
            try:
                item = await self._store.get(write.put.key)
                if not holds(unchanged, item):
                    revisions.append(0 if item is None else item.mod_revision)
                    written = item is not None and item.value == write.put.value
                    return IsrOutcome.APPLIED if written else IsrOutcome.REFUSED
                if refused:
                    # A broker registered again, so the comparisons of the unknown transaction fail for ever.
                    return IsrOutcome.REFUSED
                result = await self._authority.transact(together([write]))
            except OutcomeUnknown:
                continue
            except StoreFailure:
                return IsrOutcome.UNKNOWN
            revisions.append(result.revision)
            if result.succeeded:
                return IsrOutcome.APPLIED
            refused = True
        return IsrOutcome.UNKNOWN

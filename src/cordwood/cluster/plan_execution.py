"""Carries out plans of changes of the metadata: one request after the other, the changes of one request together.

A change that lost a race against another broker is planned again, on the newer image. A change that fails halfway
leaves only keys that no reader sees.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from cordwood.cluster.authority import Authority
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.strays import StrayPartitions, Strays
from cordwood.cluster.planner.configs import ConfigAlteration
from cordwood.cluster.planner.security.acls import AclAlteration
from cordwood.cluster.planner.security.quotas import QuotaAlteration
from cordwood.cluster.planner.security.tokens import TokenAlteration
from cordwood.cluster.planner.security.users import UserAlteration
from cordwood.cluster.planner.store_transactions import Plan
from cordwood.cluster.planner.sweep import partition_groups, sweep_partitions, sweep_topic
from cordwood.cluster.planner.topics import PartitionAddition, TopicCreation, TopicDeletion
from cordwood.cluster.stores.interface import TxnResult
from cordwood.model.errors import ErrorCode, ProtocolError

_ATTEMPTS = 5
"""The number of times that a change is planned anew after another broker changed the same keys."""
TOPICS_AT_ONCE = 50
"""Topics planned in one turn of the loop: a topic takes about 0.1 ms. A topic with long texts counts as several."""

Planned = TypeVar(
    "Planned",
    TopicCreation,
    PartitionAddition,
    TopicDeletion,
    ConfigAlteration,
    UserAlteration,
    AclAlteration,
    QuotaAlteration,
    TokenAlteration,
)
Name = TypeVar("Name", bound=Hashable)
Item = TypeVar("Item")


class PlanExecution:
    def __init__(self, follower: ImageFollower, authority: Authority) -> None:
        self._follower = follower
        self._authority = authority
        self.one_at_a_time = asyncio.Lock()
        """Held while a request is carried out."""

    async def sweep(self, strays: Strays) -> None:
        """Removes the remains of interrupted changes. A change under way at another broker is planned anew there."""
        for topic in strays.topics:
            await self._authority.attempt(sweep_topic(topic))
        for partitions in strays.partitions:
            await self._sweep_partitions(partitions)

    async def _sweep_partitions(self, stray: StrayPartitions) -> int:
        """Removes stray partitions. Returns the revision that the store is at afterwards."""
        row_revision = stray.row_revision
        for group in partition_groups(stray):
            result = await self._authority.attempt(sweep_partitions(stray, group, row_revision))
            if not result.succeeded:
                return result.revision
            row_revision = result.revision
        return row_revision

    async def in_slices(
        self,
        wanted: Sequence[tuple[Name, Item]],
        plan: Callable[[Sequence[Item]], dict[Name, Planned | ProtocolError]],
        validate_only: bool,
        at_once: int = TOPICS_AT_ONCE,
        weigh: Callable[[Item], int] = lambda item: 1,
    ) -> dict[Name, Planned | ProtocolError]:
        """Carries out a large request in slices, with a turn of the loop after each. Items of a name share a slice. A
        slice ends when its items weigh `at_once`."""
        by_name: dict[Name, list[Item]] = {}
        for name, item in wanted:
            by_name.setdefault(name, []).append(item)
        outcomes: dict[Name, Planned | ProtocolError] = {}
        for names in _slices(by_name, at_once, weigh):
            outcomes |= await self._carry_out(
                lambda names: plan([item for name in names for item in by_name[name]]), names, validate_only
            )
            await asyncio.sleep(0)
        return outcomes

    async def _carry_out(
        self,
        plan: Callable[[Collection[Name]], dict[Name, Planned | ProtocolError]],
        names: Iterable[Name],
        validate_only: bool,
    ) -> dict[Name, Planned | ProtocolError]:
        """Plans and executes changes. A change that lost a race is planned again, on the newer image."""
        async with self.one_at_a_time:
            outcomes: dict[Name, Planned | ProtocolError] = {}
            wanted: Collection[Name] = dict.fromkeys(names)
            for _ in range(_ATTEMPTS):
                planned = plan(wanted)
                outcomes.update(planned)
                if validate_only:
                    return outcomes
                plans = {
                    name: outcome.plan
                    for name, outcome in planned.items()
                    if not isinstance(outcome, ProtocolError) and outcome.plan is not None
                }
                results = await _all(self._execute(each) for each in plans.values())
                await self._follower.reach(max((result.revision for result in results), default=0))
                wanted = [name for name, result in zip(plans, results, strict=True) if not result.succeeded]
                if not wanted:
                    return outcomes
                await self._authority.check()
            for name in outcomes:
                if name in wanted:
                    outcomes[name] = ProtocolError(
                        ErrorCode.REQUEST_TIMED_OUT, "Other requests kept changing the same metadata: try again."
                    )
            return outcomes

    async def _execute(self, plan: Plan) -> TxnResult:
        """Executes a whole plan, or leaves nothing of it but invisible keys."""
        results = [] if plan.announcement is None else [await self._authority.attempt(plan.announcement)]
        if all(result.succeeded for result in results):
            results += await _all(self._authority.attempt(transaction) for transaction in plan.preparations)
        if all(result.succeeded for result in results):
            result = await self._authority.commit(plan)
            if result.succeeded:
                return result
            results.append(result)
        results += await _all(self._authority.attempt(transaction) for transaction in plan.undo)
        swept = 0 if plan.leftovers is None else await self._sweep_partitions(plan.leftovers)
        return TxnResult(False, max(swept, *(result.revision for result in results)))


def _slices(by_name: Mapping[Name, Sequence[Item]], at_once: int, weigh: Callable[[Item], int]) -> Iterator[list[Name]]:
    """Yields the names in slices. Items are weighed when their slice begins: earlier slices may have changed their
    stored values."""
    names: list[Name] = []
    weight = 0
    for name, items in by_name.items():
        names.append(name)
        weight += sum(map(weigh, items))
        if weight >= at_once:
            yield names
            names, weight = [], 0
    if names:
        yield names


async def _all(calls: Iterable[Awaitable[TxnResult]]) -> list[TxnResult]:
    """Awaits all calls together. Returns their results, or raises the first error once all calls have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]

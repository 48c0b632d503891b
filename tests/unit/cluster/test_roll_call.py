"""A roll call ends when every broker has seen what was written before it, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.unit.cluster.test_controller import Cluster, CountingStore, cluster

from cordwood.cluster.metadata.rows import ROLL_CALLS
from cordwood.cluster.roll_call import RollCall
from cordwood.cluster.stores.interface import Compare, Operation, OutcomeUnknown, Put, TxnResult


async def all_answer(call: RollCall, *brokers: int) -> None:
    while not await call.answered() >= set(brokers):  # noqa: ASYNC110  nothing tells the asker of answers
        await asyncio.sleep(0.001)


async def test_every_broker_answers_once_and_nothing_is_left() -> None:
    async with cluster(1, 2, 3) as three:
        call = await RollCall.begin(three.store)
        await all_answer(call, 1, 2, 3)
        await three.until(lambda image: list(image.roll_calls.answered.values()) == [{1, 2, 3}])
        await call.end()
        await three.until(lambda image: not image.roll_calls.answered)
        assert not (await three.store.list(ROLL_CALLS)).items


async def test_a_broker_that_comes_later_answers_too_and_one_that_is_gone_counts_no_more() -> None:
    async with cluster(1, 2) as two:
        call = await RollCall.begin(two.store)
        await all_answer(call, 1, 2)
        await two.start(3)
        await all_answer(call, 3)
        await two.kill(2)
        await two.until(lambda image: list(image.roll_calls.answered.values()) == [{1, 3}])
        assert await call.answered() == {1, 3}
        await call.end()


class UnsureStore(CountingStore):
    """Does not say what became of the first answer."""

    unsure = 1

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        if self.unsure and any(
            isinstance(each, Put) and each.key.startswith(f"{ROLL_CALLS}") and each.key.endswith("/1")
            for each in operations
        ):
            self.unsure -= 1
            raise OutcomeUnknown("nobody knows")
        return await super().txn(compares, operations)


async def test_an_answer_that_the_store_did_not_take_is_given_again() -> None:
    three = Cluster(UnsureStore())
    try:
        for broker_id in (1, 2):
            await three.start(broker_id)
        call = await RollCall.begin(three.store)
        await all_answer(call, 1, 2)
        await call.end()
    finally:
        await three.stop()

"""When the brokers of `cordwood cluster up` count as up."""

import asyncio
from types import SimpleNamespace
from typing import Any

from cordwood.broker.supervision.local_brokers import Broker, until_all_serve
from cordwood.cluster.metadata.rows import (
    ROLL_CALLS,
    BrokerRow,
    Endpoint,
    encode_broker,
    roll_call_answer_key,
)
from cordwood.cluster.stores.interface import Put
from cordwood.cluster.stores.memory import MemoryStore

TIMEOUT_S = 30


def launched(node_id: int) -> Broker:
    child: Any = SimpleNamespace(ended=False)
    return Broker(node_id, "127.0.0.1", 9092, (), {}, None, child)


async def story() -> None:
    store = MemoryStore()
    for node_id in (1, 2):
        row = BrokerRow(1, f"life-{node_id}", (Endpoint("PLAINTEXT", "127.0.0.1", 9092),), None)
        await store.txn((), [Put(f"brokers/{node_id}", encode_broker(row))])
    said: list[str] = []
    up = asyncio.create_task(until_all_serve([launched(1), launched(2)], store, set(), said.append))
    async with asyncio.timeout(TIMEOUT_S):
        while not (asked := (await store.list(ROLL_CALLS)).items):  # noqa: ASYNC110  nothing tells of a question
            await asyncio.sleep(0.001)
        name = asked[0].key.removeprefix(ROLL_CALLS)
        await store.txn((), [Put(roll_call_answer_key(name, 1), b"")])
        # Both are registered without a fence; but broker 2 has not said yet that it has seen that.
        finished, _ = await asyncio.wait({up}, timeout=0.3)
        assert not finished
        await store.txn((), [Put(roll_call_answer_key(name, 2), b"")])
        await up
        assert not (await store.list(ROLL_CALLS)).items


def test_a_cluster_is_up_when_each_broker_has_seen_the_others() -> None:
    asyncio.run(story())

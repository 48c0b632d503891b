"""When the brokers of `cordwood cluster up` count as up."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from cordwood.broker.server import Server
from cordwood.broker.storage.memory import Memory
from cordwood.broker.supervision.local_brokers import Broker, until_all_serve
from cordwood.cluster.metadata.rows import BrokerRow, Endpoint, encode_broker
from cordwood.cluster.stores.interface import Put
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.model.settings.broker_settings import BrokerSettings

A_WHILE_S = 0.3


def launched(node_id: int, port: int) -> Broker:
    child: Any = SimpleNamespace(ended=False)
    return Broker(node_id, "127.0.0.1", port, (), {}, None, child)


async def story() -> None:
    server = await Server.start(BrokerSettings.from_texts({"listeners": "127.0.0.1:0"}), memory=Memory())
    host, port = server.address
    store = MemoryStore()
    for node_id in (1, 2):
        row = BrokerRow(1, f"life-{node_id}", (Endpoint("PLAINTEXT", host, port),), None)
        await store.txn((), [Put(f"brokers/{node_id}", encode_broker(row))])
    said: list[str] = []
    try:
        await until_all_serve([launched(1, port)], store, set(), said.append)
        # Broker 1 listens, and both are registered without a fence; but broker 1 has not heard of broker 2.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(A_WHILE_S):
                await until_all_serve([launched(1, port), launched(2, port)], store, set(), said.append)
    finally:
        await server.stop()


def test_a_cluster_is_up_when_each_broker_tells_clients_of_all() -> None:
    asyncio.run(story())

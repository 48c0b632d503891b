"""Clients cannot take the connections that brokers need, neither at their own listener nor at that of brokers."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import BROKER, Client
from tests.deadline import eventually, eventually_here
from tests.raw_client import RawClient

from cordwood.broker.network.connections import MOST_STRANGERS
from cordwood.embedded import Broker, Cluster
from cordwood.model.errors import ProtocolError
from cordwood.wire.apis import ApiKey
from cordwood.wire.asking import encode_request, request_start

ASKED = encode_request(ApiKey.API_VERSIONS, 3, {"client_software_name": "x", "client_software_version": "1"})


def proof(correlation_id: int) -> bytes:
    """A request that proves its sender."""
    return request_start(ApiKey.API_VERSIONS, 3, correlation_id, b"", len(ASKED), sender=BROKER) + ASKED


async def test_a_broker_gets_in_where_clients_have_taken_every_connection(serving: Any, request_frame: Any) -> None:
    async with serving(max_connections=3) as broker:
        clients = [await broker.connect() for _ in range(3)]
        await eventually_here(lambda: len(broker.connections), to_be=3)
        for client in clients[1:]:
            await client.send(request_frame(1))
            assert (await client.receive_response())[0] == 1
        peer = await broker.connect(to_brokers=True)
        await peer.send(proof(7))
        assert (await peer.receive_response())[0] == 7
        assert await clients[0].closed(), "the one that was idle for the longest time makes way"
        late = await broker.connect()
        assert await late.closed()
        for client in clients[1:]:
            await client.send(request_frame(2))
            assert (await client.receive_response())[0] == 2


async def test_brokers_get_in_after_the_bound_was_lowered_below_the_number_of_clients(
    serving: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(max_connections=5) as broker:
        clients = [await broker.connect() for _ in range(5)]
        await eventually_here(lambda: len(broker.connections), to_be=5)
        broker.connections.limits = broker.connections.limits._replace(max_connections=1)
        for _ in range(7):
            peer = await broker.connect(to_brokers=True)
            await peer.send(proof(7))
            assert (await peer.receive_response())[0] == 7
        for client in clients:
            assert await client.closed(), "each broker that comes takes the place of a client"
        assert len(broker.connections) == 7
        assert broker.connections.refused == 0
        assert await (await broker.connect()).closed(), "clients wait until there is room below the bound"
        assert any("there are 7 already, and 1 may be: see max.connections" in line for line in caplog.messages)


async def test_a_crowd_at_the_listener_of_brokers_closes_neither_brokers_nor_all_clients(
    serving: Any, request_frame: Any
) -> None:
    async with serving(max_connections=MOST_STRANGERS + 20) as broker:
        client, peer = await broker.connect(), await broker.connect(to_brokers=True)
        await client.send(request_frame(1))
        assert (await client.receive_response())[0] == 1
        await peer.send(proof(1))
        assert (await peer.receive_response())[0] == 1
        for _ in range(2 * MOST_STRANGERS):
            await broker.connect(to_brokers=True)
        await eventually_here(lambda: broker.connections.accepted == 2 * MOST_STRANGERS + 2)
        assert len(broker.connections) == MOST_STRANGERS + 2
        another = await broker.connect(to_brokers=True)
        await another.send(proof(2))
        assert (await another.receive_response())[0] == 2
        for other, frame in ((client, request_frame(3)), (peer, proof(3))):
            await other.send(frame)
            assert (await other.receive_response())[0] == 3


async def test_a_flood_from_one_address_pushes_out_no_broker_that_is_about_to_prove_itself(serving: Any) -> None:
    async with serving(max_connections=MOST_STRANGERS + 20) as broker:
        peer = Client(await broker.connected(source="127.0.0.2", to_brokers=True))
        broker.clients.append(peer)
        for _ in range(MOST_STRANGERS + 50):
            await broker.connect(to_brokers=True)
        await eventually_here(lambda: broker.connections.accepted == MOST_STRANGERS + 51)
        await peer.send(proof(7))
        assert (await peer.receive_response())[0] == 7


async def test_one_address_has_its_share_and_brokers_do_not_count(
    serving: Any, request_frame: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(max_connections_per_address=2) as broker:
        first, second = await broker.connect(), await broker.connect()
        await eventually_here(lambda: len(broker.connections), to_be=2)
        assert await (await broker.connect()).closed()
        assert any(
            "there are 2 from its address already: see max.connections.per.ip" in line for line in caplog.messages
        )
        others = [await broker.connect(source="127.0.0.2"), await broker.connect(to_brokers=True)]
        first.close()
        await eventually_here(lambda: len(broker.connections), to_be=3)
        for client in (second, *others, await broker.connect()):
            await client.send(request_frame(1))
            assert (await client.receive_response())[0] == 1
        for client in broker.clients:
            client.close()
        await eventually_here(lambda: len(broker.connections), to_be=0)
        assert not broker.connections._by_address, "addresses without connections are forgotten"


@pytest.mark.parametrize("bound", ["max.connections", "max.connections.per.ip"])
def test_the_bounds_of_connections_change_at_run_time_and_outlast_a_restart(
    bound: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def alter(client: RawClient, operation: int, value: str | None) -> None:
        changes = [{"name": bound, "config_operation": operation, "value": value}]
        resources = [{"resource_type": 4, "resource_name": "", "configs": changes}]
        (told,) = client.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources).responses
        assert told.error_code == 0, told.error_message

    def is_served(client: RawClient) -> bool:
        with suppress(ConnectionError, AssertionError):
            return not client.send(ApiKey.API_VERSIONS, 0).error_code
        return False

    def one_more_is_served(broker: Broker) -> bool:
        one_more = RawClient(broker.bootstrap_servers)
        served = is_served(one_more)
        one_more.close()
        return served

    with Broker(data_dir=tmp_path) as broker:
        first, second = RawClient(broker.bootstrap_servers), RawClient(broker.bootstrap_servers)
        assert is_served(first)
        assert is_served(second)
        alter(first, 0, "1")
        eventually(lambda: not one_more_is_served(broker), what=f"refusals by {bound}")
        assert is_served(first)
        assert is_served(second), "a connection that was open stays"
        first.close()
        second.close()
    with Broker(data_dir=tmp_path, settings={bound: 500}) as broker:
        (said,) = [line for line in caplog.messages if line.startswith(f"{bound} is 1, not 500 as this broker was st")]
        assert said.endswith(f"--entity-default --alter --delete-config {bound}")
        only = RawClient(broker.bootstrap_servers)
        assert is_served(only)
        assert not one_more_is_served(broker)
        alter(only, 1, None)
        eventually(lambda: one_more_is_served(broker), what="room by the default")
        only.close()


def test_followers_come_back_while_clients_hold_every_connection() -> None:
    """The follower's process is gone, and its leader has no free connection when it returns."""
    with Cluster(nodes=2, settings={"max.connections": 12, "min.insync.replicas": 2}) as cluster:

        def accepted() -> bool:
            with suppress(ProtocolError):
                cluster.leader("orders").log.append("orders", None, "on both")
                return True
            return False

        with suppress(ProtocolError):
            cluster.brokers[1].log.append("orders", None, "the first creates the topic")
        eventually(accepted, what="the first record on both")
        leader = cluster.leader("orders")
        follower = next(each for each in cluster.brokers.values() if each is not leader)
        follower.kill()

        async def crowd() -> list[asyncio.StreamWriter]:
            opened = [await asyncio.open_connection(leader.host, leader.port) for _ in range(24)]
            return [writer for _, writer in opened]

        with asyncio.Runner() as runner:
            held = runner.run(crowd())
            follower.start()
            eventually(accepted, what="the follower in sync")
            assert len(held) == 24

"""Whoever holds the loop is named; and a connection that takes long, or works in steps, lets others have their turn."""

import asyncio
import logging
import time
from typing import Any

import pytest
from tests.deadline import eventually_here

from cordwood.broker.machine.loop_watch import STALL_S
from cordwood.broker.network.connection import TURN_S


async def test_a_request_that_held_the_loop_is_named_in_the_log_and_counted(
    serving: Any, request_frame: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "cordwood.broker")
    async with serving() as broker:
        now_s = [100.0]
        broker.loop_watch.monotonic_s = broker.loop_watch.cpu_s = lambda: now_s[0]

        def slowly(header: Any, body: bytes, reply: Any) -> None:
            now_s[0] += 2 * STALL_S
            reply.nothing()

        broker.node.answer = slowly
        client = await broker.connect()
        await client.send(request_frame(1) * 3)
        await eventually_here(lambda: len(broker.node.requests), to_be=3)
        assert caplog.messages == [
            "the event loop was held for 100 ms (100 ms of CPU) by Metadata of None on connection 1 from 127.0.0.1"
        ]
        assert broker.loop_watch.held_cpu_s == {"Metadata": pytest.approx(6 * STALL_S)}
        now_s[0] += 60.0
        await client.send(request_frame(1))
        await eventually_here(lambda: len(broker.node.requests), to_be=4)
        assert caplog.messages[1].endswith("; 2 such turns before it were not logged")


async def test_a_task_that_held_the_loop_is_named_in_the_log_and_counted(
    serving: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "cordwood.broker")
    async with serving() as broker:
        now_s = [100.0]
        watch = broker.loop_watch
        watch.monotonic_s = watch.cpu_s = lambda: now_s[0]

        async def plans_much() -> None:
            await asyncio.sleep(0)
            now_s[0] += 2 * STALL_S
            await asyncio.sleep(0)

        await asyncio.get_running_loop().create_task(plans_much())
        assert len(caplog.messages) == 1
        assert "held for 100 ms (100 ms of CPU) by its own task" in caplog.messages[0]
        assert caplog.messages[0].endswith("plans_much")
        now_s[0] += 60.0
        await asyncio.get_running_loop().create_task(
            watch.watched("AlterConfigs", "the plan for a request", plans_much())
        )
        assert caplog.messages[1].endswith("by the plan for a request")
        assert watch.held_cpu_s == {"none": pytest.approx(2 * STALL_S), "AlterConfigs": pytest.approx(2 * STALL_S)}


async def test_a_failure_a_result_and_a_cancellation_pass_through_a_watched_task(serving: Any) -> None:
    async with serving():
        loop = asyncio.get_running_loop()

        async def fails() -> None:
            raise ValueError("so it does")

        async def waits() -> str:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "cancelled"
            return "waited"

        with pytest.raises(ValueError, match="so it does"):
            await loop.create_task(fails())
        waiting = loop.create_task(waits(), name="waits")
        await asyncio.sleep(0)
        waiting.cancel()
        assert await waiting == "cancelled"
        assert waiting.get_name() == "waits"


async def test_a_stall_that_nobody_named_is_logged_if_it_took_cpu_time(
    serving: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "cordwood.broker")
    async with serving() as broker:
        watch = broker.loop_watch
        for cpu_s in (0.0, 2 * STALL_S):
            watch._due_s, watch._armed_cpu_s = time.monotonic() - 3 * STALL_S, watch.cpu_s() - cpu_s
            watch._timer.cancel()
            watch._fired()
        (said,) = caplog.messages
        assert said.endswith("by work that nobody watches")


async def test_a_connection_whose_request_took_long_lets_others_have_their_turn(
    serving: Any, request_frame: Any
) -> None:
    async with serving() as broker:
        now_s = [100.0]
        broker.loop_watch.monotonic_s = lambda: now_s[0]
        served: list[int] = []

        def slowly(header: Any, body: bytes, reply: Any) -> None:
            now_s[0] += TURN_S
            served.append(reply.connection_id)
            reply.nothing()

        broker.node.answer = slowly
        greedy, modest = await broker.connect(), await broker.connect()
        await greedy.send(request_frame(1) * 20)
        await modest.send(request_frame(1))
        await eventually_here(lambda: len(served), to_be=21)
        assert served.index(2) < 20


async def test_the_next_request_of_a_connection_that_is_held_waits_until_it_is_released(
    serving: Any, request_frame: Any
) -> None:
    async with serving() as broker:

        def hold(header: Any, body: bytes, reply: Any) -> None:
            if header.correlation_id == 1:
                reply.hold()

        broker.node.answer = hold
        client, other = await broker.connect(), await broker.connect()
        await client.send(request_frame(1) + request_frame(2))
        await other.send(request_frame(3))
        await eventually_here(lambda: len(broker.node.requests), to_be=2)
        assert [header.correlation_id for header, _, _ in broker.node.requests] == [1, 3]
        broker.node.reply(0).release()
        await eventually_here(lambda: len(broker.node.requests), to_be=3)

"""Records on their way from files to sockets: complete, in order, in bounded memory, whatever the disk does."""

import asyncio
import os
import random
import struct
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.broker.conftest import PLAIN_AND_TLS
from tests.deadline import eventually_here

from cordwood.broker.network.sending import SMALL_SLICE_BYTES
from cordwood.broker.network.slice_buffers import SLICE_BYTES
from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.files.memory_filesystem import MemoryFilesystem
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.segments.filesystem import File

pytestmark = PLAIN_AND_TLS

CONTENT = random.Random(1).randbytes(3 * SLICE_BYTES + 12_345)


class Slice(NamedTuple):
    file: File
    position: int
    length: int
    base_offset: int = 0


def file_with_content(kind: str, directory: Path) -> File:
    if kind == "disk":
        disk = OsFilesystem(str(directory))
        file = disk.open(str(directory / "a.log"), create=True)
    elif kind == "memory":
        memory = MemoryFilesystem()
        memory.make_directory("d")
        file = memory.open("d/a.log", create=True)
    else:
        cold = CrashingFilesystem()
        cold.nothing_cached = True
        cold.make_directory("d")
        file = cold.open("d/a.log", create=True)
    file.append(CONTENT)
    return file


def response_of(correlation_id: int, *slices: Slice) -> list[Any]:
    """As a fetch response: small parts between the records, and one at the end."""
    size = 4 + sum(part.length for part in slices) + 3 * len(slices) + 4
    parts: list[Any] = [struct.pack(">ii", size, correlation_id)]
    for part in slices:
        parts += [b"pt:", part]
    parts.append(b"tail")
    return parts


def expected_body(*slices: Slice) -> bytes:
    return b"".join(b"pt:" + CONTENT[part.position : part.position + part.length] for part in slices) + b"tail"


@pytest.fixture(params=["disk", "memory", "cold"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> File:
    return file_with_content(request.param, tmp_path)


@pytest.mark.parametrize(
    "lengths",
    [
        (100,),
        (SMALL_SLICE_BYTES - 1,),
        (SMALL_SLICE_BYTES,),
        (3 * SLICE_BYTES + 1,),
        (200, 300, 400),
        (200, SLICE_BYTES, 300, 2 * SLICE_BYTES - 7, 1),
        (60_000,) * 30,
        (100_000,) * 15,
    ],
)
async def test_records_arrive_whole_and_in_order(
    serving: Any, request_frame: Any, file: File, lengths: tuple[int, ...]
) -> None:
    slices = [Slice(file, 11 * number, length) for number, length in enumerate(lengths)]
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = lambda header, body, reply: reply.send(
            response_of(header.correlation_id, *slices) if body == b"fetch" else struct.pack(">ii", 4, 9)
        )
        for round_number in range(2):
            await client.send(request_frame(round_number, b"fetch") + request_frame(9) + request_frame(9, b"fetch"))
            assert await client.receive_response() == (round_number, expected_body(*slices))
            assert await client.receive_response() == (9, b"")
            assert await client.receive_response() == (9, expected_body(*slices))
        assert broker.sending.buffers.lent == 0


async def test_a_slow_reader_gets_everything(serving: Any, request_frame: Any, file: File) -> None:
    whole = Slice(file, 0, len(CONTENT))
    async with serving() as broker:
        client = await broker.connect(receive_buffer=8192)
        broker.node.answer = lambda header, body, reply: reply.send(response_of(header.correlation_id, whole, whole))
        await client.send(request_frame(5))
        received = bytearray()
        size = 8 + len(expected_body(whole, whole))
        while len(received) < size:
            received += await client.receive(min(30_000, size - len(received)))
            await asyncio.sleep(0)
        assert received[8:] == expected_body(whole, whole)
        assert broker.sending.buffers.lent == 0


@pytest.mark.stories
async def test_peers_that_do_not_read_cannot_keep_the_buffers_from_others(
    serving: Any, request_frame: Any, tmp_path: Path
) -> None:
    file = file_with_content("cold", tmp_path)
    large = [Slice(file, 0, len(CONTENT))] * 8
    async with serving(buffer_count=2) as broker:
        broker.node.answer = lambda header, body, reply: reply.send(response_of(header.correlation_id, *large))
        stuck = [await broker.connect(receive_buffer=4096) for _ in range(2)]
        for client in stuck:
            await client.send(request_frame(1))
        await eventually_here(lambda: broker.sending.buffers.lent, to_be=2)
        quick = await broker.connect()
        await quick.send(request_frame(2))
        assert await quick.receive_response() == (2, expected_body(*large))
        for client in stuck:
            assert await client.receive_response() == (1, expected_body(*large))
        assert broker.sending.buffers.lent == 0


async def test_a_peer_that_goes_away_in_the_middle_leaves_nothing_behind(
    serving: Any, request_frame: Any, file: File
) -> None:
    slices = [Slice(file, 0, len(CONTENT))] * 20
    open_before = len(os.listdir("/proc/self/fd"))
    async with serving() as broker:
        for _ in range(3):
            client = await broker.connect(receive_buffer=4096)
            broker.node.answer = lambda header, body, reply: reply.send(response_of(header.correlation_id, *slices))
            await client.send(request_frame(1))
            await client.receive(100_000)
            client.close()
            await eventually_here(lambda: len(broker.connections), to_be=0)
        await eventually_here(lambda: broker.cold_readers.under_way, to_be=0)
        assert broker.sending.buffers.lent == 0
    file.close()
    assert len(os.listdir("/proc/self/fd")) <= open_before + 4


async def test_a_file_that_became_shorter_ends_the_connection(serving: Any, request_frame: Any, file: File) -> None:
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = lambda header, body, reply: reply.send(response_of(1, Slice(file, 0, len(CONTENT))))
        file.truncate(SLICE_BYTES)
        await client.send(request_frame(1))
        assert await client.closed()
        await eventually_here(lambda: broker.node.closed, to_be=[1])
        assert broker.failures == []


async def test_a_reader_of_cold_records_does_not_keep_others_waiting(
    serving: Any, request_frame: Any, tmp_path: Path
) -> None:
    file = file_with_content("cold", tmp_path)
    async with serving() as broker:
        reader, producer = await broker.connect(), await broker.connect()
        broker.node.answer = lambda header, body, reply: reply.send(
            response_of(1, *[Slice(file, 0, len(CONTENT))] * 40) if body == b"fetch" else struct.pack(">ii", 4, 2)
        )
        await reader.send(request_frame(1, b"fetch"))
        await reader.receive(8)
        answered = 0
        for _ in range(20):
            await producer.send(request_frame(2))
            assert (await producer.receive_response())[0] == 2
            answered += 1
            await reader.receive(10_000)
        assert answered == 20

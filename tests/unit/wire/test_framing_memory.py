"""The memory of a frame reader follows the bytes that have arrived, not the claimed size."""

import pytest

from cordwood.wire.framing import BUFFER_BYTES, BufferPool, FrameReader

MEBIBYTE = 1024 * 1024


def receive(reader: FrameReader, data: bytes) -> list[bytes]:
    frames: list[bytes] = []
    while data:
        room = reader.get_buffer()
        piece, data = data[: len(room)], data[len(room) :]
        room[: len(piece)] = piece
        frames += [bytes(frame) for frame in reader.received(len(piece))]
    return frames


def frame(size: int) -> bytes:
    return size.to_bytes(4, "big") + bytes(size)


@pytest.fixture
def pool() -> BufferPool:
    return BufferPool()


@pytest.fixture
def reader(pool: BufferPool) -> FrameReader:
    return FrameReader(100 * MEBIBYTE, pool)


def test_a_connection_at_rest_holds_nothing(pool: BufferPool, reader: FrameReader) -> None:
    receive(reader, frame(100))
    assert pool.lent_bytes == BUFFER_BYTES
    reader.release()
    assert pool.lent_bytes == 0
    receive(reader, frame(100)[:50])
    reader.release()
    assert pool.lent_bytes == BUFFER_BYTES, "half a frame must not be lost"
    assert receive(reader, frame(100)[50:]) == [bytes(100)]


def test_a_claim_of_a_large_frame_allocates_nothing_for_it(pool: BufferPool, reader: FrameReader) -> None:
    receive(reader, (90 * MEBIBYTE).to_bytes(4, "big") + b"begin")
    reader.get_buffer()
    assert pool.lent_bytes == BUFFER_BYTES


def test_the_buffer_of_a_large_frame_is_never_more_than_twice_what_has_arrived(
    pool: BufferPool, reader: FrameReader
) -> None:
    data = frame(5 * MEBIBYTE)
    arrived = 0
    while arrived < len(data):
        room = reader.get_buffer()
        assert pool.lent_bytes <= 2 * max(arrived, BUFFER_BYTES) + BUFFER_BYTES
        count = min(len(room), 100_000, len(data) - arrived)
        room[:count] = data[arrived : arrived + count]
        arrived += count
        frames = list(reader.received(count))
    assert [len(found) for found in frames] == [5 * MEBIBYTE]


def test_after_a_large_frame_the_next_one_of_its_size_is_received_in_place(
    pool: BufferPool, reader: FrameReader
) -> None:
    receive(reader, frame(MEBIBYTE))
    reader.release()
    room = reader.get_buffer()
    assert len(room) >= MEBIBYTE + 4
    assert pool.free_bytes < 4 * MEBIBYTE


def test_small_frames_after_a_large_one_give_its_memory_back(pool: BufferPool, reader: FrameReader) -> None:
    receive(reader, frame(MEBIBYTE))
    receive(reader, frame(10))
    receive(reader, frame(10))
    assert pool.lent_bytes == BUFFER_BYTES


def test_the_pool_keeps_no_more_than_it_may() -> None:
    pool = BufferPool(keep_bytes=2 * BUFFER_BYTES)
    buffers = [pool.take(1) for _ in range(5)]
    for buffer in buffers:
        pool.give_back(buffer)
    assert pool.free_bytes == 2 * BUFFER_BYTES
    assert pool.lent_bytes == 0


def test_a_closed_connection_gives_its_half_frame_back(pool: BufferPool, reader: FrameReader) -> None:
    receive(reader, frame(100)[:50])
    reader.close()
    assert pool.lent_bytes == 0


def test_frames_left_for_later_are_still_there(reader: FrameReader) -> None:
    room = reader.get_buffer()
    data = frame(1) + frame(2) + frame(3)
    room[: len(data)] = data
    first = next(iter(reader.received(len(data))))
    assert len(first) == 1
    assert [len(later) for later in reader] == [2, 3]


def test_receiving_while_frames_are_waiting_is_a_mistake(reader: FrameReader) -> None:
    room = reader.get_buffer()
    data = frame(1) + frame(2)
    room[: len(data)] = data
    next(reader.received(len(data)))
    with pytest.raises(AssertionError, match="waiting"):
        reader.get_buffer()

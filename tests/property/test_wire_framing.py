"""However a stream is cut into pieces, it gives the same frames."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.seeds import examples

from cordwood.wire.encoding.bad_messages import BadRequest, FrameTooLarge
from cordwood.wire.framing import BufferPool, FrameReader

MAX_REQUEST_BYTES = 1000
BUFFER_BYTES = 64
"""Small, so that frames cross, fill and outgrow it."""

payloads = st.lists(
    st.integers(0, 40) | st.sampled_from([56, 59, 60, 61, 64, 124, 128, 200, 600, MAX_REQUEST_BYTES]), max_size=12
)
cuts = st.lists(st.integers(1, 90) | st.sampled_from([700, 3000]), min_size=1, max_size=30)


def stream_of(sizes: list[int], random: Random) -> tuple[bytes, list[bytes]]:
    frames = [random.randbytes(size) for size in sizes]
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames), frames


def delivered(reader: FrameReader, stream: bytes, pieces: list[int], *, release: bool) -> list[bytes]:
    """The frames that come out when the stream arrives in pieces of these sizes, again and again."""
    frames: list[bytes] = []
    position = turn = 0
    while position < len(stream):
        room = reader.get_buffer()
        assert len(room) > 0
        count = min(len(room), pieces[turn % len(pieces)], len(stream) - position)
        turn += 1
        room[:count] = stream[position : position + count]
        position += count
        # All views first, their bytes later: one frame must not spoil another before the next receive.
        views = list(reader.received(count))
        frames += [bytes(view) for view in views]
        assert all(not view.readonly for view in views)
        if release:
            reader.release()
    return frames


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(sizes=payloads, pieces=cuts, release=st.booleans(), seed=st.integers(0, 9))
@example(sizes=[600] * 5, pieces=[3000], release=False, seed=0)
@example(sizes=[600, 590, 620, 3, 600], pieces=[3000], release=True, seed=0)
def test_frames_do_not_depend_on_how_the_stream_was_cut(
    sizes: list[int], pieces: list[int], release: bool, seed: int
) -> None:
    stream, frames = stream_of(sizes, Random(seed))
    pool = BufferPool(buffer_bytes=BUFFER_BYTES, keep_bytes=4 * BUFFER_BYTES)
    reader = FrameReader(MAX_REQUEST_BYTES, pool)
    assert delivered(reader, stream, pieces, release=release) == frames
    assert reader.unread_bytes == 0
    reader.release()
    assert pool.lent_bytes == 0
    assert pool.free_bytes <= 4 * BUFFER_BYTES


@pytest.mark.parametrize("piece", [1, 10_000])
@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(sizes=payloads, bad_size=st.sampled_from([MAX_REQUEST_BYTES + 1, 2**31 - 1, -1, -(2**31)]))
def test_frames_before_a_bad_size_are_delivered_and_then_the_stream_is_lost(
    piece: int, sizes: list[int], bad_size: int
) -> None:
    stream, frames = stream_of(sizes, Random(1))
    stream += bad_size.to_bytes(4, "big", signed=True) + b"more"
    reader = FrameReader(MAX_REQUEST_BYTES, BufferPool(buffer_bytes=BUFFER_BYTES))
    seen: list[bytes] = []
    expected = FrameTooLarge if bad_size > 0 else BadRequest
    position = 0
    with pytest.raises(expected):  # noqa: PT012 - the frames come before the failure
        while position < len(stream):
            room = reader.get_buffer()
            count = min(len(room), piece, len(stream) - position)
            room[:count] = stream[position : position + count]
            position += count
            for frame in reader.received(count):
                seen.append(bytes(frame))
    assert seen == frames
    with pytest.raises(expected):
        next(reader)


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(orders=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 90)), max_size=60), seed=st.integers(0, 5))
def test_connections_that_share_a_pool_do_not_mix(orders: list[tuple[int, int]], seed: int) -> None:
    random = Random(seed)
    pool = BufferPool(buffer_bytes=BUFFER_BYTES, keep_bytes=3 * BUFFER_BYTES)
    readers = [FrameReader(MAX_REQUEST_BYTES, pool) for _ in range(4)]
    streams = [stream_of([random.choice((3, 30, 70, 300)) for _ in range(12)], random) for _ in readers]
    positions = [0] * 4
    seen: list[list[bytes]] = [[] for _ in readers]
    for who, most in orders:
        room = readers[who].get_buffer()
        piece = streams[who][0][positions[who] : positions[who] + min(most, len(room))]
        room[: len(piece)] = piece
        positions[who] += len(piece)
        seen[who] += [bytes(frame) for frame in readers[who].received(len(piece))]
        readers[who].release()
    for who, frames in enumerate(seen):
        assert frames == streams[who][1][: len(frames)]
        assert sum(len(frame) + 4 for frame in frames) + readers[who].unread_bytes == positions[who]
        readers[who].close()
    assert pool.lent_bytes == 0

"""Memory is used again, and never while a view of it is alive."""

from cordwood.wire.receive_buffers import KEPT, REUSED_FROM_BYTES, ReceiveBuffers

LARGE = 10 * REUSED_FROM_BYTES


def test_memory_that_somebody_looks_at_is_not_given_out_again() -> None:
    buffers = ReceiveBuffers()
    views = [buffers.take(LARGE) for _ in range(KEPT + 3)]
    for number, view in enumerate(views):
        view[:] = bytes([number]) * LARGE
    assert [view[0] for view in views] == [view[-1] for view in views] == list(range(KEPT + 3))


def test_a_part_of_an_answer_keeps_all_of_it() -> None:
    buffers = ReceiveBuffers()
    part = buffers.take(LARGE)[100:200]
    part[:] = b"x" * 100
    buffers.take(LARGE)[:] = b"y" * LARGE
    assert part == b"x" * 100


def test_memory_that_nobody_looks_at_is_used_again() -> None:
    buffers = ReceiveBuffers()
    first = buffers.take(LARGE)
    first[:3] = b"old"
    del first
    assert bytes(buffers.take(LARGE - 5)[:3]) == b"old"


def test_a_longer_answer_gets_longer_memory_and_the_short_one_is_given_up() -> None:
    buffers = ReceiveBuffers()
    for size in (LARGE, 2 * LARGE, 3 * LARGE, 4 * LARGE, 5 * LARGE, 6 * LARGE):
        assert len(buffers.take(size)) == size
    view = buffers.take(6 * LARGE)
    view[:3] = b"old"
    del view
    assert bytes(buffers.take(6 * LARGE)[:3]) == b"old"


def test_a_huge_buffer_does_not_serve_small_answers() -> None:
    buffers = ReceiveBuffers()
    huge = buffers.take(100 * LARGE)
    huge[:3] = b"old"
    del huge
    assert bytes(buffers.take(LARGE)[:3]) != b"old"

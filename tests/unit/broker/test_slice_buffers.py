"""A bounded number of buffers, none of which a peer that does not read can keep from others."""

from cordwood.broker.network.slice_buffers import SLICE_BYTES, STALLED_S, SliceBuffers


class Holder:
    def __init__(self, buffers: SliceBuffers) -> None:
        self.buffers = buffers
        self.stalled: float | None = None
        self.told = 0
        self.gave_up = 0

    def stalled_since(self) -> float | None:
        return self.stalled

    def give_up_buffer(self) -> None:
        self.gave_up += 1
        self.stalled = None
        self.buffers.give_back(self)

    def buffer_is_free(self) -> None:
        self.told += 1


def test_buffers_are_used_again() -> None:
    buffers = SliceBuffers(2)
    holder = Holder(buffers)
    buffer = buffers.take(holder, 0.0)
    assert buffer is not None
    assert len(buffer) == SLICE_BYTES
    buffers.give_back(holder)
    assert buffers.take(holder, 0.0) is buffer


def test_who_finds_none_is_told_when_one_is_free() -> None:
    buffers = SliceBuffers(1)
    first, second, third = Holder(buffers), Holder(buffers), Holder(buffers)
    assert buffers.take(first, 0.0) is not None
    assert buffers.take(second, 0.0) is None
    assert buffers.take(third, 0.0) is None
    buffers.give_back(first)
    assert (second.told, third.told) == (1, 0)
    assert buffers.take(second, 0.0) is not None
    buffers.forget(second)
    assert third.told == 1
    assert buffers.lent == 0


def test_a_buffer_whose_peer_has_stalled_is_taken_back_for_others() -> None:
    buffers = SliceBuffers(1)
    slow, quick = Holder(buffers), Holder(buffers)
    buffers.take(slow, 0.0)
    slow.stalled = 10.0
    assert buffers.take(quick, 10.0 + STALLED_S / 2) is None
    buffers.relieve(10.0 + STALLED_S / 2)
    assert slow.gave_up == 0
    buffers.relieve(10.0 + STALLED_S)
    assert slow.gave_up == 1
    assert quick.told == 1
    assert buffers.take(quick, 11.0) is not None


def test_a_holder_that_waits_for_the_disk_keeps_its_buffer() -> None:
    buffers = SliceBuffers(1)
    reading, other = Holder(buffers), Holder(buffers)
    buffers.take(reading, 0.0)
    assert buffers.take(other, 1000.0) is None
    assert reading.gave_up == 0


def test_who_leaves_while_waiting_is_not_told() -> None:
    buffers = SliceBuffers(1)
    first, gone, third = Holder(buffers), Holder(buffers), Holder(buffers)
    buffers.take(first, 0.0)
    buffers.take(gone, 0.0)
    buffers.take(third, 0.0)
    buffers.forget(gone)
    buffers.give_back(first)
    assert (gone.told, third.told) == (0, 1)

"""The log against a plain list, on a disk that forgets, tears and reorders what was not synced.

The list has every batch that was ever appended and not taken back, as the bytes that the log must give. Whatever
happens, the log shows a run of that list: what was durable is in it, nothing is changed, nothing is invented, and no
offset is given out twice.
"""

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.moments import at
from tests.seeds import examples

from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import ColdRead, Log
from cordwood.log.parts.loaded_indexes import LoadedIndexes
from cordwood.log.reading.lookup import LogSlice
from cordwood.log.upkeep.checkpoint import CheckpointTicket, write_checkpoints
from cordwood.log.upkeep.flushing import FlushTicket
from cordwood.model.errors import DiskFull, ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicPartition
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import batches_in, read_header
from cordwood.records.build import build_batch

PARTITION = TopicPartition("orders", 0)
DATA = "/disk/data"
SETTINGS = TopicSettings(
    segment_bytes=900, index_interval_bytes=200, segment_ms=1000, retention_ms=-1, file_delete_delay_ms=500
)
PRODUCERS = (11, 12)
WINDOW = 5


@dataclass(frozen=True)
class Appended:
    """One batch that the log has taken."""

    base_offset: int
    last_offset: int
    stored: bytes
    producer_id: int
    first_sequence: int


class LogModel(RuleBasedStateMachine):
    """`model` is the truth; `durable` is how far the log has promised it."""

    @initialize(seed=st.integers(0, 2**32 - 1))
    def start(self, seed: int) -> None:
        self.filesystem = CrashingFilesystem(seed)
        self.model: list[Appended] = []
        self.end = 0
        self.durable = 0
        self.start_offset = 0
        self.epoch = 0
        self.now_ms = 1_000_000
        self.flushing: FlushTicket | None = None
        self.checkpointing: CheckpointTicket | None = None
        self._open()

    def _open(self) -> None:
        self.directory = DataDirectory(self.filesystem, DATA, loaded_indexes=LoadedIndexes(2000))
        self.directory.open()
        self.log: Log = self.directory.open_log(PARTITION, None, SETTINGS, at(self.now_ms))
        self.flushing = self.checkpointing = None

    # Appending

    @rule(records=st.integers(1, 4), size=st.integers(0, 300), producer=st.sampled_from((-1, *PRODUCERS)))
    def append(self, records: int, size: int, producer: int) -> None:
        self.now_ms += 1
        self._append(self._next_batch(records, size, producer), producer)

    def _next_batch(self, records: int, size: int, producer: int) -> bytearray:
        rows = [(self.now_ms, b"key", bytes([self.end % 251]) * size, ())] * records
        if producer < 0:
            return build_batch(rows)
        return build_batch(rows, producer_id=producer, producer_epoch=0, base_sequence=self._next_sequence(producer))

    def _next_sequence(self, producer: int) -> int:
        mine = [batch for batch in self.model if batch.producer_id == producer]
        return mine[-1].first_sequence + mine[-1].last_offset - mine[-1].base_offset + 1 if mine else 0

    def _append(self, batch: bytearray, producer: int) -> None:
        header = read_header(batch)
        appended = self.log.append(batch, leader_epoch=self.epoch, now=at(self.now_ms))
        assert not appended.duplicate
        assert appended.base_offset == self.end, "offsets are contiguous and never given out twice"
        assert appended.last_offset == self.end + header.last_offset_delta
        self.model.append(
            Appended(appended.base_offset, appended.last_offset, bytes(batch), producer, header.base_sequence)
        )
        self.end = appended.last_offset + 1

    @precondition(lambda self: any(batch.producer_id >= 0 for batch in self.model))
    @rule(back=st.integers(1, 7), producer=st.sampled_from(PRODUCERS))
    def repeat(self, back: int, producer: int) -> None:
        """A producer that got no answer sends one of its last batches again."""
        mine = [batch for batch in self.model if batch.producer_id == producer]
        if len(mine) < back:
            return
        repeated = mine[-back]
        if back <= WINDOW:
            answer = self.log.append(bytearray(repeated.stored), leader_epoch=self.epoch, now=at(self.now_ms))
            assert answer.duplicate
            assert (answer.base_offset, answer.last_offset) == (repeated.base_offset, repeated.last_offset)
        else:
            with pytest.raises(ProtocolError) as refusal:
                self.log.append(bytearray(repeated.stored), leader_epoch=self.epoch, now=at(self.now_ms))
            assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(size=st.integers(0, 300), room=st.integers(0, 200))
    def append_to_a_full_disk(self, size: int, room: int) -> None:
        self.filesystem.free_for_appends = room
        batch = self._next_batch(1, size, -1)
        try:
            self._append(batch, -1)
        except DiskFull:
            assert len(batch) > room or self.log.offsets.end == self.end
        finally:
            self.filesystem.free_for_appends = None

    # Durability

    @rule()
    def begin_flush(self) -> None:
        self.flushing = self.log.begin_flush()
        if self.flushing is None:
            assert self.durable == self.end

    @precondition(lambda self: self.flushing is not None)
    @rule()
    def finish_flush(self) -> None:
        ticket = self.flushing
        assert ticket is not None
        ticket.sync()
        ticket.finish()
        self.flushing = None
        self._note_durable()

    @rule()
    def begin_checkpoint(self) -> None:
        self.checkpointing = self.log.begin_checkpoint()

    @precondition(lambda self: self.checkpointing is not None)
    @rule(together=st.booleans())
    def finish_checkpoint(self, together: bool) -> None:
        ticket = self.checkpointing
        assert ticket is not None
        self.checkpointing = None
        if together:
            ticket.write(keep_open=False)
            self.filesystem.sync_everything()
            ticket.install()
            self.filesystem.sync_everything()
        else:
            write_checkpoints(self.filesystem, [ticket])
        ticket.finish()
        self._note_durable()

    @rule()
    def save_offsets(self) -> None:
        self.directory.checkpoints.save_offsets()()

    def _note_durable(self) -> None:
        assert self.log.offsets.recovery_point <= self.log.offsets.durable_end <= self.end
        assert self.log.offsets.durable_end >= self.durable
        self.durable = self.log.offsets.durable_end

    # Stopping and starting

    @rule()
    def power_cut(self) -> None:
        recovery_point = self.log.offsets.recovery_point
        self.filesystem.crash()
        self._open()
        note(f"recovered to {self.log.offsets.end}: {self.log.reports.recovery}")
        self._adopt_recovered(recovery_point)

    @rule()
    def kill(self) -> None:
        """The process dies, the machine does not: all that was written is there."""
        self._open()
        assert self.log.offsets.end == self.end
        self._adopt_recovered(self.log.offsets.recovery_point)

    def _adopt_recovered(self, recovery_point: int) -> None:
        end = self.log.offsets.end
        assert self.durable <= end <= self.end, "what was durable is there, and nothing is invented"
        assert not self.log.reports.damage, "nothing below the recovery point was lost"
        assert self.log.offsets.recovery_point <= recovery_point or self.log.offsets.recovery_point <= end
        self.model = [batch for batch in self.model if batch.last_offset < end]
        assert end in (self.model[-1].last_offset + 1 if self.model else 0, self.start_offset), "a batch is torn"
        self.end = end
        self.durable = self.log.offsets.durable_end
        assert self.durable == end, "what recovery found it made durable"
        # Deleting records is made durable by the next save of the offsets: until then it may be undone.
        assert self.log.offsets.start <= self.start_offset
        self.start_offset = self.log.offsets.start

    @rule()
    def clean_stop(self) -> None:
        self.directory.close()
        self._open()
        assert self.directory.clean
        assert self.log.offsets.end == self.end
        assert self.log.offsets.start == self.start_offset
        assert self.log.reports.recovery.clean
        self.durable = self.end

    @rule()
    def clean_stop_then_power_cut(self) -> None:
        """What a clean stop promises holds without power."""
        self.directory.close()
        self.filesystem.crash()
        self._open()
        assert self.directory.clean
        assert (self.log.offsets.start, self.log.offsets.end) == (self.start_offset, self.end)
        self.durable = self.end

    # Shortening

    @precondition(lambda self: bool(self.model))
    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        target = self.start_offset + int((self.end - self.start_offset) * part)
        if target == self.start_offset:
            return
        self.log.truncate_to(target)
        self.model = [batch for batch in self.model if batch.last_offset < target]
        self.end = max(self.model[-1].last_offset + 1 if self.model else 0, self.start_offset)
        assert self.log.offsets.end == self.end
        self.durable = min(self.durable, self.end)
        self.epoch += 1

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        target = self.start_offset + int((self.durable - self.start_offset) * part)
        self.log.delete_records_before(target)
        self.start_offset = max(self.start_offset, target)
        assert self.log.offsets.start == self.start_offset

    @rule(keep_bytes=st.integers(0, 3000))
    def retain_by_size(self, keep_bytes: int) -> None:
        self.log.change_settings(
            TopicSettings(
                segment_bytes=900,
                index_interval_bytes=200,
                segment_ms=1000,
                retention_bytes=keep_bytes,
                retention_ms=-1,
            )
        )
        before = self.log.segments.size_bytes
        deleted = self.log.apply_retention(at(self.now_ms), limit_offset=self.durable)
        self.log.change_settings(SETTINGS)
        assert self.log.segments.size_bytes == before - sum(segment.size_bytes for segment in deleted)
        if deleted:
            assert self.log.segments.size_bytes >= keep_bytes or "log's start" in deleted[-1].reason
            assert deleted[-1].end_offset <= self.durable
            self.start_offset = max(self.start_offset, deleted[-1].end_offset)
        assert self.log.offsets.start == self.start_offset

    @rule()
    def time_passes(self) -> None:
        self.now_ms += 2000
        self.log.roll_if_due(self.now_ms)
        self.log.apply_retention(at(self.now_ms), limit_offset=self.durable)
        self.start_offset = self.log.offsets.start

    # Reading

    @rule(
        where=st.floats(0, 1),
        until=st.floats(0, 1),
        max_bytes=st.integers(1, 2500),
        minimum_one_batch=st.booleans(),
        cold=st.booleans(),
    )
    def read(self, where: float, until: float, max_bytes: int, minimum_one_batch: bool, cold: bool) -> None:
        offset = self.start_offset + int((self.end - self.start_offset) * where)
        end_offset = self.start_offset + int((self.end - self.start_offset) * until)
        self.filesystem.nothing_cached = cold
        try:
            found = self.log.read(
                offset, max_bytes, end_offset=end_offset, minimum_one_batch=minimum_one_batch, may_block=False
            )
        except ColdRead as read:
            found = read.finish()
        finally:
            self.filesystem.nothing_cached = False
        self._check_slice(found, offset, end_offset, max_bytes, minimum_one_batch)

    def _check_slice(
        self, found: LogSlice | None, offset: int, end_offset: int, max_bytes: int, minimum_one_batch: bool
    ) -> None:
        readable = [batch for batch in self.model if batch.last_offset >= offset and batch.last_offset < end_offset]
        if found is None:
            assert (
                offset >= end_offset or not readable or (len(readable[0].stored) > max_bytes and not minimum_one_batch)
            )
            return
        assert readable, "nothing was there to read"
        data = found.file.read(found.position, found.length)
        batches = [data[position : position + header.size] for position, header in batches_in(data)]
        assert sum(map(len, batches)) == found.length, "batches are whole"
        assert batches == [batch.stored for batch in readable[: len(batches)]]
        assert found.base_offset == readable[0].base_offset
        assert found.length <= max_bytes or (minimum_one_batch and len(batches) == 1)

    @rule(where=st.floats(0, 1))
    def find_by_time(self, where: float) -> None:
        if not self.model:
            return
        wanted = read_header(self.model[int((len(self.model) - 1) * where)].stored).max_timestamp
        visible = [batch for batch in self.model if batch.last_offset >= self.start_offset]
        expected = next(
            (
                (max(batch.base_offset, self.start_offset), timestamp)
                for batch in visible
                if (timestamp := read_header(batch.stored).max_timestamp) >= wanted
            ),
            None,
        )
        found = self.log.timestamp_search(wanted, end_offset=self.end).run()
        assert (None if found is None else (found.offset, found.timestamp_ms)) == expected

    @invariant()
    def the_ends_are_in_order(self) -> None:
        log = self.log
        assert log.offsets.start <= log.offsets.end
        assert log.offsets.recovery_point <= log.offsets.durable_end <= log.offsets.end == self.end
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))

    def teardown(self) -> None:
        if not hasattr(self, "log"):
            return
        offset = self.start_offset
        for batch in self.model:
            if batch.last_offset < self.start_offset:
                continue
            found = self.log.read(offset, 1, end_offset=self.end, minimum_one_batch=True)
            assert found is not None
            assert found.file.read(found.position, found.length) == batch.stored
            offset = batch.last_offset + 1
        assert offset == self.end
        self._check_history()

    def _check_history(self) -> None:
        """What is known of producers and epochs is what the batches say, whatever happened in between."""
        for description in self.log.replayed.producers.describe():
            mine = [batch for batch in self.model if batch.producer_id == description.producer_id]
            assert mine, "a producer that never wrote what the log has"
            last = mine[-1]
            assert description.last_sequence == last.first_sequence + last.last_offset - last.base_offset
        epochs = self.log.replayed.leader_epochs
        for batch in self.model:
            if batch.base_offset >= self.start_offset:
                assert epochs.epoch_at(batch.base_offset) == read_header(batch.stored).partition_leader_epoch


PROFILE = settings(
    max_examples=examples(300),
    stateful_step_count=50,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_the_log_always_shows_a_run_of_what_was_appended() -> None:
    run_state_machine_as_test(LogModel, settings=PROFILE)

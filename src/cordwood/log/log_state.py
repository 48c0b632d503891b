"""The state of one partition's log: the attributes that all of its transitions read and change.

Any module may read attributes without an underscore; only the modules of this folder change them. Three ends are
distinct: `log_end_offset` (appended), `durable_end_offset` (fsynced), `recovery_point` (fsynced and checkpointed: below
it nothing is ever cut).
"""

from bisect import bisect_right
from collections.abc import Callable

from cordwood.log.loaded_indexes import LoadedIndexes
from cordwood.log.producers import ProducerStates
from cordwood.log.report import Damage, RecoveryReport
from cordwood.log.segment import Deletion, Segment, base_offset_of
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.model.topic_settings import TopicSettings
from cordwood.segments.filesystem import File, Filesystem
from cordwood.segments.leader_epochs import LeaderEpochs
from cordwood.segments.partition_metadata import TopicDescription

DescribeTopic = Callable[[TopicId], TopicDescription | None]


class LogState:
    __slots__ = (
        "_latest_epoch",
        "_leader_epochs",
        "_producers",
        "_recovery",
        "_settings",
        "acks_mean_disk",
        "active",
        "checkpoint_due",
        "closing",
        "damage",
        "deletions",
        "describe_topic",
        "directory",
        "durable_end_offset",
        "epochs_changed",
        "ever_compacted",
        "filesystem",
        "loaded_indexes",
        "log_append_time",
        "log_end_offset",
        "log_start_offset",
        "names_version",
        "newest_snapshot_is_empty",
        "on_cut",
        "on_late_report",
        "opened",
        "partition",
        "producer_expiration_ms",
        "ready",
        "recovery_point",
        "recovery_point_lost",
        "saved_recovery_point",
        "segment_bytes",
        "segments",
        "snapshots",
        "topic_id",
        "truncations",
        "unsaved_snapshots",
        "unsynced_directories",
        "unsynced_files",
        "witness_due",
        "witnessed_end_offset",
    )

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        partition: TopicPartition,
        settings: TopicSettings,
        *,
        recovery_point: int,
        log_start_offset: int,
        now: Moment,
        producer_expiration_ms: int,
        topic_id: TopicId | None,
        ever_compacted: bool,
        recovery_point_lost: bool,
        loaded_indexes: LoadedIndexes,
        describe_topic: DescribeTopic,
        witnessed_end_offset: int,
    ) -> None:
        self.filesystem = filesystem
        self.directory = directory
        self.partition = partition
        self.topic_id = topic_id
        self.describe_topic = describe_topic
        self.ever_compacted = ever_compacted
        """Whether compaction may have removed offsets, whatever the topic's present policy is."""
        self.recovery_point_lost = recovery_point_lost
        """Whether the log had a higher recovery point that is unknown now."""
        self.opened = now
        self.producer_expiration_ms = producer_expiration_ms
        self.loaded_indexes = loaded_indexes
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.durable_end_offset = self.recovery_point = recovery_point
        self.saved_recovery_point = recovery_point
        """The recovery point on disk, to which a crash goes back. It follows `recovery_point`. Set in any thread."""
        self.witnessed_end_offset = witnessed_end_offset
        """The end up to which the log was fsynced when it was last in use (segments/end_witness.py); 0: unknown. The
        files beside the log may be older: only the recovery point speaks for them."""
        self.damage: list[Damage] = []
        """Damage found below the recovery point or the witnessed end, which is never cut."""
        self.segments: tuple[Segment, ...] = ()
        """The segments, oldest first. The tuple is replaced whole: threads that read cold data keep it."""
        self.active: Segment | None = None
        """The last segment while it takes appends. None: the next append begins a new segment."""
        self.ready = True
        """False from a clean start until the first use: the end of the active segment has not been checked."""
        self.closing: list[Segment] = []
        """Rolled segments whose index files are not complete yet."""
        self.deletions: list[Deletion] = []
        self.truncations = 0
        """How often the log was cut: a cut voids the tickets that were taken before."""
        self.unsynced_directories: tuple[str, ...] = ()
        self.unsynced_files: tuple[File, ...] = ()
        """Files beside the segments that the next flush must make durable."""
        self.names_version = 0
        self.snapshots: list[int] = []
        """The offsets of the producer snapshots on disk, ascending."""
        self.unsaved_snapshots: tuple[tuple[int, bytes], ...] = ()
        self.newest_snapshot_is_empty = False
        self.epochs_changed = False
        self.checkpoint_due = False
        """Whether files beside the log are wrong: a checkpoint must write them even without new data."""
        self.witness_due = False
        """Whether the witness of the transaction indexes has to be written anew (segments/abort_witness.py)."""
        self.on_cut: Callable[[LogState], None] | None = None
        """Called before a cut, with the lower recovery point; must make it durable, and forget the witnessed end,
        before it returns."""
        self.on_late_report: Callable[[], None] | None = None
        """Called when the first use after a clean stop found something to report: `recovery` and `damage` have it."""
        self._recovery: RecoveryReport | None = None
        self._leader_epochs: LeaderEpochs | None = None
        self._latest_epoch = -1
        self._producers: ProducerStates | None = None
        self._settings = settings
        self._take_over(settings)

    def __repr__(self) -> str:
        return f"Log({self.partition}, offsets {self.log_start_offset} to {self.log_end_offset})"

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: TopicSettings) -> None:
        before, self._settings = self._settings, settings
        if self.active is not None:
            self.active.roll_at_ms += settings.rolls_after_ms - before.rolls_after_ms
        self._take_over(settings)

    def _take_over(self, settings: TopicSettings) -> None:
        self.log_append_time = settings.log_append_time
        self.segment_bytes = settings.segment_bytes
        self.acks_mean_disk = settings.acks_mean_disk

    @property
    def recovery(self) -> RecoveryReport:
        """The report of opening the log."""
        if self._recovery is None:
            return RecoveryReport(True, self.recovery_point, self.log_end_offset)
        return self._recovery

    @recovery.setter
    def recovery(self, report: RecoveryReport) -> None:
        self._recovery = report

    def note_rebuilt(self, path: str) -> None:
        """Adds a file to the report that was missing or wrong, and is made again from the log."""
        report = self.recovery
        report.rebuilt.append(path)
        self._recovery = report

    def set_history(self, producers: ProducerStates, leader_epochs: LeaderEpochs) -> None:
        """Takes the state that a replay of the log gave."""
        self._producers = producers
        self._leader_epochs = leader_epochs
        self._latest_epoch = leader_epochs.latest

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def may_have_gaps(self) -> bool:
        """Whether compaction may have removed offsets: now, or before the topic's policy was changed."""
        return self._settings.compacted or self.ever_compacted

    def end_of_segment(self, place: int) -> int:
        """The end offset of the segment at this place in `segments`."""
        following = place + 1
        return self.segments[following].base_offset if following < len(self.segments) else self.log_end_offset

    def place_of(self, offset: int) -> int:
        """The place in `segments` of the segment that holds the offset; 0 if all are later."""
        return max(bisect_right(self.segments, offset, key=base_offset_of) - 1, 0)

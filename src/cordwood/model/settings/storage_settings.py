"""The settings of the disk: directories of logs, threads that read and sync, intervals of cleaning."""

from dataclasses import dataclass

from cordwood.model.settings.setting import Value, boolean, int32, int64, string


def directories_in(value: str) -> tuple[str, ...]:
    """The directories that `log.dirs` names, in their order."""
    return tuple(path.strip() for path in value.split(","))


def directory(value: Value) -> str | None:
    paths = directories_in(str(value))
    if not all(paths):
        return "must name a directory" if len(paths) == 1 else "names a directory without a name, between two commas"
    return "names a directory twice" if len(set(paths)) < len(paths) else None


@dataclass(frozen=True, init=False, repr=False, eq=False)
class StorageSettings:
    """Directories of logs, threads that read and sync, intervals of cleaning."""

    cold_read_threads: int = int32(
        4,
        "Threads that read records outside of the page cache, so that a back-filling reader stalls no other client.",
        low=1,
        high=256,
    )
    coordinator_damaged_records: str = string(
        "refuse",
        "What a coordinator does about damaged records of its own log (`__consumer_offsets`, `__transaction_state`). "
        "`refuse`: it is not available to the groups or transactional ids of that partition, until the file is "
        "restored. `skip`: it goes on without them; positions or transactions in them are lost, or older ones are "
        "found in their place.",
        choices=("refuse", "skip"),
    )
    flush_threads: int = int32(8, "Threads that fsync dirty partitions, at the same time.", low=1, high=256)
    log_cleaner_backoff_ms: int = int64(
        15_000, "How long compaction waits between two looks for work. A change counts from the next look on.", low=1
    )
    log_cleaner_dedupe_buffer_size: int = int64(
        134_217_728, "The memory that compaction may use to remember the latest offset of each key.", low=1_048_576
    )
    log_cleaner_enable: bool = boolean(True, "Whether compacted topics are compacted.")
    log_dirs: str = string(
        "./cordwood-data",
        "The directories that hold the data, with commas in between: one for each disk. A new partition goes where the "
        "fewest partitions are. The first holds the metadata, too.",
        check=directory,
    )
    log_flush_offset_checkpoint_interval_ms: int = int32(
        60_000, "How often recovery points are written: after a crash only later records are checked.", low=1
    )
    log_retention_check_interval_ms: int = int64(300_000, "How often segments are checked for retention.", low=1)
    log_scrub_bytes_per_second: int = int64(
        4_194_304,
        "How fast closed segments are read in the background, to find damage before a reader does; 0: not at all. "
        "1 TB takes three days at the default.",
        low=0,
    )
    log_scrub_interval_ms: int = int64(
        604_800_000, "How often all closed segments are read to find damage: a pass begins at most so often.", low=1
    )
    open_files_max: int = int32(
        2048,
        "Files of the log that are open at one time; the least recently used are closed and opened again "
        "when needed. More than there are partitions written to within a flush keeps flushes short. At most "
        "half of what the process may open (`ulimit -n`).",
        low=16,
    )
    producer_id_expiration_ms: int = int32(
        86_400_000,
        "How long a partition remembers an idle idempotent producer, to recognise its duplicates. It remembers 10,000 "
        "at most, and all partitions 100,000: beyond that the longest idle ones are forgotten earlier, and told so "
        "(UNKNOWN_PRODUCER_ID) if they come back.",
        low=1,
    )
    tail_memory_max_bytes: int = int64(
        67_108_864,
        "Memory for the newest batches of all partitions, which answers readers where the file system "
        "cannot say whether a read would wait for the disk.",
        low=0,
    )

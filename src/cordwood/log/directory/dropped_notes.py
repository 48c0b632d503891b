"""Notes of deletions that compaction drops, for the logs of a data directory (`segments/dropped_deletions.py`)."""

from cordwood.log.directory.identity import Identity
from cordwood.log.log import Log
from cordwood.segments.dropped_deletions import NONE, Dropped, next_mark


def dropped_before(owner: Identity | None, log: Log, cleaned_to: int) -> Dropped:
    """The note of a log that was compacted up to an offset and has none, because an earlier release compacted it, or
    the note is lost. Any deletion below the offset may have been dropped."""
    return Dropped(next_mark(None, _name(owner, log), cleaned_to), cleaned_to - 1)


def dropped_next(owner: Identity | None, log: Log, highest: int, wall_ms: int) -> Dropped:
    """The note of a log that is about to lose deletions up to this offset; -1: it is compacted, and loses none."""
    before = log.segments.dropped
    if before is not None and highest == NONE:
        return before
    highest = max(highest, NONE if before is None else before.highest)
    return Dropped(next_mark(before, _name(owner, log), wall_ms), highest)


def _name(owner: Identity | None, log: Log) -> str:
    """A name that no other log has, not even a later log of the partition on another disk."""
    where = None if owner is None else (owner.node_id, owner.storage_id, owner.directory_id)
    return f"{where} {log.directory.path} {log.directory.topic_id} {log.partition}"

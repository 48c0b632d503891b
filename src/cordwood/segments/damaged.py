"""Errors of damaged files beside the log. All such files can be rebuilt from the log."""

from cordwood.model.errors import StorageFailure


class DamagedFile(StorageFailure):
    """The bytes of an index, snapshot or checkpoint are not a valid one; the message says why."""


class DamagedIndex(DamagedFile):
    """An offset, time or transaction index that cannot be trusted: rebuild it from the log (scan.py)."""


class DamagedSnapshot(DamagedFile):
    """A producer-state snapshot that cannot be trusted: use an older one and replay the log from there."""


class DamagedCheckpoint(DamagedFile):
    """A text checkpoint (leader epochs, offsets, partition metadata) that cannot be read."""

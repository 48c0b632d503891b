"""Refills: a follower's log that may need deletions which its leader lacks, or that may lack its first files, is set
aside and filled anew.

The old files stay until the replica is in sync again: if the other replicas lose their disks meanwhile, the old copy is
the best one left. Without room for both copies the replica waits, out of sync, and says so. The follower's machine
decides that a refill is due (`replication/follower.py`).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from cordwood.log.directory.replaced import remove_replaced, replaced_directories

if TYPE_CHECKING:
    from collections.abc import Callable

    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.log.directory.data_directories import DataDirectories
    from cordwood.log.directory.data_directory import DataDirectory
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.partitions.partition import Partition
    from cordwood.node.replication.setting_aside import SettingAside
    from cordwood.replication.follower import FollowerReplica, Refill
    from cordwood.segments.set_aside import Note

logger = logging.getLogger("cordwood")

ROOM_BYTES = 16 << 20
"""The room that a refill leaves free, beside that of a second copy."""


class Refills:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        logs: DataDirectories,
        hosted: HostedReplicas,
        aside: SettingAside,
        reports: Reports,
    ) -> None:
        self._loop = loop
        self._image = image
        self._logs = logs
        self._hosted = hosted
        self._aside = aside
        self._reports = reports
        self._replaced: list[tuple[DataDirectory, Note, str]] = []
        """The directories that are removed when their partitions are in sync."""
        self._unnamed = False
        """True if a directory could not be renamed at once: it gets its new name when the new log is opened."""

    # Beginning

    def begin(
        self, partition: Partition, following: FollowerReplica, why: Refill, ended: Callable[[bool], None]
    ) -> bool:
        """Sets the log aside in a thread, if there is room for both copies; `ended` gets True if it did. False: another
        thread rewrites the log, and the caller asks again later."""
        if not partition.log_is_free:
            return False
        self._aside.take(partition)
        measured = partial(self._measured, partition, following, why, ended)
        self._loop.effects.blocking(partial(self._logs.free_bytes_of, following.log), measured)
        return True

    def _measured(
        self,
        partition: Partition,
        following: FollowerReplica,
        why: Refill,
        ended: Callable[[bool], None],
        free_bytes: int | Exception,
    ) -> None:
        needed = following.log.segments.size_bytes + ROOM_BYTES
        if isinstance(free_bytes, Exception):
            self._reports.failure(free_bytes)
        elif free_bytes < needed:
            self._reports.report(
                logging.ERROR,
                f"{partition.name} stays out of sync: {why.value}. To fill it anew needs {needed} bytes "
                f"beside the old copy, of which {following.log.directory.parent} has {free_bytes}",
            )
        else:
            logger.warning(
                "%s: %s: the partition is filled anew from broker %d. It ended at %d; the old files are kept until it "
                "is in sync",
                partition.name,
                why.value,
                following.leader,
                following.log.offsets.end,
            )
            self._aside.begin(partition, following, why.value, partial(self._is_aside, ended), until_in_sync=True)
            return
        self._aside.give_back(partition)
        ended(False)

    def _is_aside(self, ended: Callable[[bool], None], succeeded: bool) -> None:
        if not succeeded:
            self._unnamed = True
        self.find()
        ended(succeeded)

    # The end

    def find(self) -> None:
        """Finds the directories that wait for their partitions, at the start and after each refill, and removes those
        that need not wait."""
        self._find()
        self._remove()

    def image_changed(self) -> None:
        """Removes the old files of partitions that are in sync again, or not here any more."""
        if self._unnamed:
            self._find()
        if self._replaced:
            self._remove()

    def _find(self) -> None:
        self._replaced = [
            (directory, note, path)
            for directory in self._logs.directories
            if directory not in self._logs.lost
            for note, path in replaced_directories(directory)
        ]

    def _remove(self) -> None:
        for entry in list(self._replaced):
            directory, note, path = entry
            if (why := self._needed_no_more(note)) is not None:
                self._replaced.remove(entry)
                directory.on_disk.set_aside_directories.remove(path)
                logger.info("%s %s: %s is removed", note.partition, why, path)
                self._loop.effects.blocking(partial(remove_replaced, directory, path), self._removed)

    def _needed_no_more(self, note: Note) -> str | None:
        """The reason why a directory that was set aside can go; None: it stays."""
        if note.topic_id in self._image.deleted_topics:
            return "is deleted"
        partition = self._hosted.get(*note.partition)
        if partition is None:
            topic, image = self._image.topics.get(note.partition.topic), self._image.partition_of(*note.partition)
            if topic is None or topic.topic_id != note.topic_id or image is None or image.lossy_epoch:
                return None  # a leader may have lacked records that are here
            # A move ends when all replicas of the new set are in sync.
            return "moved to other brokers"
        if partition.topic_id != note.topic_id or partition.role.being_cut:
            return None
        return "is in sync again" if self._image.node_id in partition.image.isr else None

    def _removed(self, result: Exception | None) -> None:
        if isinstance(result, Exception):
            self._reports.failed_write(result)

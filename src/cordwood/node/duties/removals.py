"""Removes files: logs of deleted topics and of partitions that moved away; at the start directories that the metadata
does not know."""

import logging
from collections.abc import Mapping

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.log.directory.data_directories import DataDirectories, Stray
from cordwood.log.directory.strays import Fate
from cordwood.model.errors import DiskFull, StorageFailure, SyncFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports
from cordwood.node.partitions.hosted import HostedReplicas
from cordwood.node.partitions.known_topics import known_topics
from cordwood.node.partitions.log_opening import LogOpening
from cordwood.node.partitions.partition import Partition

logger = logging.getLogger("cordwood")


class Removals:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        logs: DataDirectories,
        hosted: HostedReplicas,
        opening: LogOpening,
        reports: Reports,
    ) -> None:
        self._loop = loop
        self._image = image
        self._logs = logs
        self._hosted = hosted
        self._opening = opening
        self._reports = reports

    def delete_logs(self, deleted: dict[TopicId, list[TopicPartition]], delays_ms: Mapping[TopicId, int]) -> None:
        """Renames the directories of deleted topics soon; then the topics' tombstones are removed. The files stay for
        the `file.delete.delay.ms` of their topic, or until the next start. Files of a topic without a tombstone are set
        aside: a store that was restored from an older copy does not know the topic."""
        unknown = [
            topic_id for topic_id, names in deleted.items() if names and topic_id not in self._image.deleted_topics
        ]
        self._set_aside(
            [(topic_id, name) for topic_id in unknown for name in deleted.pop(topic_id)],
            "the metadata no longer has its topic, and no deletion of it",
        )
        for delay_ms in sorted({delays_ms[topic_id] for topic_id in deleted}):
            self._delete_after(
                delay_ms, {each: names for each, names in deleted.items() if delays_ms[each] == delay_ms}
            )

    def _delete_after(self, delay_ms: int, deleted: dict[TopicId, list[TopicPartition]]) -> None:
        removal = self._logs.condemn_logs([name for names in deleted.values() for name in names])

        def renamed(result: Exception | None) -> None:
            if isinstance(result, Exception):
                self._reports.failed_write(result)
            else:
                self._forget_deletions(list(deleted))
            self._loop.after(delay_ms, lambda _: self._loop.effects.blocking(removal.free_disk, freed))

        def freed(result: Exception | None) -> None:
            if isinstance(result, Exception):
                self._reports.failed_write(result)

        self._loop.effects.blocking(removal.free_names, renamed)

    def remove_replicas(self, partitions: list[Partition]) -> None:
        """Removes the files of partitions that other brokers have now. Those brokers were in sync before, and since
        this replica last agreed with a leader no leader without acknowledged records was elected."""
        names = [partition.name for partition in partitions]

        def freed(result: Exception | None) -> None:
            if isinstance(result, Exception):
                self._reports.failed_write(result)

        logger.info("%s moved to other brokers: the files here are deleted", ", ".join(map(str, names)))
        forget = self._logs.forget_ends((partition.topic_id, partition.name) for partition in partitions)
        self._loop.effects.blocking(self._logs.condemn_logs(names, forget).run, freed)

    def set_given_up_aside(self, partitions: list[Partition]) -> None:
        """Sets aside the files of replicas that were given up while this broker was cut off, or kept records that their
        leaders lacked: no other broker may have these records."""
        self._set_aside(
            [(partition.topic_id, partition.name) for partition in partitions],
            "the partition went on elsewhere without records that may be here",
        )

    def _set_aside(self, logs: list[tuple[TopicId, TopicPartition]], reason: str) -> None:
        if not logs:
            return

        def renamed(result: Exception | None) -> None:
            if isinstance(result, Exception):
                self._reports.failed_write(result)
            self._opening.report_set_aside()

        aside = self._logs.set_logs_aside(logs, reason, self._loop.now.wall_ms)
        self._loop.effects.blocking(aside.run, renamed)

    def _forget_deletions(self, topic_ids: list[TopicId]) -> None:
        def forgotten(result: Exception | None) -> None:
            # The next start removes the tombstones; until then they take a little space.
            if isinstance(result, Exception):
                self._reports.failure(result)

        self._loop.effects.metadata(lambda writer: writer.forget_deletions(topic_ids), forgotten)

    # At the start

    def sort_out_strays(self) -> set[TopicPartition]:
        """Deletes logs of deleted topics, sets unknown logs aside; returns the partitions whose directories are
        missing."""
        known = known_topics(self._image)
        tombstones = known.tombstones
        remaining: set[TopicId] = set()
        for stray in self._logs.strays(known):
            try:
                self._sort_out(stray)
            except DiskFull as failure:
                logger.error(
                    "%s keeps its directory, and is not served (%s): %s",
                    stray.partition,
                    stray.verdict.reason,
                    failure,
                )
            except SyncFailure:
                raise
            except StorageFailure as failure:
                remaining.update(tombstones)
                self._reports.failure(failure)
        self._logs.forget_ends_but((partition.topic_id, partition.name) for partition in self._hosted)
        self._opening.report_set_aside()
        if tombstones.keys() - remaining:
            # The metadata is written later: the node is not driven yet.
            forgotten = sorted(tombstones.keys() - remaining)
            self._loop.timers.at(self._loop.now.boot_ms, lambda _: self._forget_deletions(forgotten))
        missing = set(self._logs.missing((partition.topic_id, partition.name) for partition in self._hosted))
        for name in sorted(missing):
            logger.error("%s had records, and its directory is missing", name)
        return missing

    def _sort_out(self, stray: Stray) -> None:
        directory, name, verdict = stray
        match verdict.fate:
            case Fate.DELETED:
                logger.info("%s is deleted: %s", name, verdict.reason)
                directory.delete_log(name)
            case Fate.EMPTY:
                if verdict.reason:
                    logger.warning("%s/%s is empty, and is removed: %s", directory.path, name, verdict.reason)
                directory.delete_log(name)
            case Fate.SET_ASIDE:
                directory.set_aside(name, verdict.reason, self._loop.now.wall_ms)
            case Fate.REPAIRED:
                logger.warning(
                    "%s: %s. The directory belongs to the topic of its name; the topic id is written again",
                    name,
                    verdict.reason,
                )
            case Fate.LEFT_ALONE:
                logger.warning(
                    "%s/%s is not a log of this broker, and is left alone: keep other files elsewhere",
                    directory.path,
                    name,
                )

"""Who guards the guards: a broker with a bug built in does not get through many games."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from simulation.game import SimulationFailed
from simulation.log_game import play
from simulation.world.disk import SimulatedDisk, SimulatedFile
from simulation.world.profile import Fault, Profile
from tests.simulation.telling_seeds import telling_first

from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.offsets.kept_offsets import KeptOffsets
from cordwood.log.log import Appended
from cordwood.log.opening import recovery
from cordwood.log.parts.producers import ProducerStates
from cordwood.log.rewriting import compaction
from cordwood.log.upkeep.flushing import FlushTicket
from cordwood.model.moment import Moment
from cordwood.node.partitions.appends import Appends
from cordwood.node.partitions.partition import Partition
from cordwood.node.partitions.waits import Waits
from cordwood.node.requests.parked import ParkedRequests
from cordwood.replication.leader import LeaderReplica

Patch = pytest.MonkeyPatch
MOST_GAMES = 60


def acknowledges_before_the_sync(patch: Patch) -> None:
    patch.setattr(Partition, "must_sync", False)


def shows_what_is_not_durable(patch: Patch) -> None:
    patch.setattr(LeaderReplica, "own_end", property(lambda replica: replica.log.offsets.end))


def acknowledges_duplicates_at_once(patch: Patch) -> None:
    real = Appends.append

    def append(
        appends: Appends, partition: Partition, batch: memoryview, acks: int, now: Moment
    ) -> tuple[Appended, bool]:
        appended, safe = real(appends, partition, batch, acks, now)
        return appended, safe or appended.duplicate

    patch.setattr(Appends, "append", append)


def forgets_producers_when_it_restarts(patch: Patch) -> None:
    patch.setattr(ProducerStates, "from_snapshot", classmethod(lambda cls, entries, boot_ms: cls()))
    patch.setattr(ProducerStates, "replay", lambda *arguments: None)


def has_a_disk_that_lies(patch: Patch) -> None:
    patch.setattr(SimulatedFile, "sync", lambda file: None)


def never_syncs_directories_of_partitions(patch: Patch) -> None:
    real = SimulatedDisk.sync_directory

    def sync_directory(disk: SimulatedDisk, path: str) -> None:
        if path == "/data":
            real(disk, path)

    patch.setattr(SimulatedDisk, "sync_directory", sync_directory)


def flushes_only_one_of_two_segments(patch: Patch) -> None:
    def sync(ticket: FlushTicket) -> None:
        ticket.files[0].sync()
        for directory in ticket.directories:
            ticket.directory.filesystem.sync_directory(directory)

    patch.setattr(FlushTicket, "sync", sync)


def trusts_every_stop(patch: Patch) -> None:
    real = DataDirectory.open

    def open_directory(directory: DataDirectory, identity: Any = None) -> None:
        real(directory, identity)
        directory.clean = True

    patch.setattr(DataDirectory, "open", open_directory)


def does_not_make_durable_what_it_recovered(patch: Patch) -> None:
    real: Callable[..., Any] = recovery.Recovery._recover_segment

    def recover_segment(*arguments: Any, **options: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SimulatedFile, "sync", lambda file: None)
            return real(*arguments, **options)

    patch.setattr(recovery.Recovery, "_recover_segment", recover_segment)


def loses_the_latest_record_of_a_key(patch: Patch) -> None:
    patch.setattr(compaction._Cleaner, "_keep", lambda cleaner, header, batch: cleaner._keep_empty(header, batch))


def forgets_where_logs_begin(patch: Patch) -> None:
    patch.setattr(KeptOffsets, "begin_save", lambda offsets, names=(): lambda: None)


def lets_readers_sleep(patch: Patch) -> None:
    patch.setattr(Waits, "wake_readers", lambda waits, now: None)


def does_not_ask_to_be_woken(patch: Patch) -> None:
    def park(parked: ParkedRequests, connection_id: int, waiting: Any) -> None:
        parked.by_connection.setdefault(connection_id, {})[waiting] = None

    patch.setattr(ParkedRequests, "park", park)


def keeps_fetches_that_are_answered(patch: Patch) -> None:
    patch.setattr(ParkedRequests, "unpark", lambda parked, connection_id, waiting: None)


PLAIN = Profile(
    faults=(Fault.HANDLES,),
    fault_rate=0.02,
    eagerness=0.75,
    settings={"log.flush.offset.checkpoint.interval.ms": "3000", "log.cleaner.backoff.ms": "400"},
    loaded_indexes_bytes=1 << 20,
    idempotent_producers=3,
    plain_producers=2,
    deletes_topics=False,
    retention=False,
    compaction=False,
    vandals=False,
    durability=("disk",),
    threads=False,
)
DEATH = replace(PLAIN, faults=(Fault.KILL, Fault.POWER_CUT), fault_rate=0.03)
COMPACTION = replace(PLAIN, compaction=True)


TELLING: dict[Callable[[Patch], None], int] = {
    acknowledges_duplicates_at_once: 15,
    trusts_every_stop: 4,
    does_not_make_durable_what_it_recovered: 12,
    keeps_fetches_that_are_answered: 8,
}
"""Seeds whose games notice at once what the first games do not."""


@pytest.mark.parametrize(
    ("sabotage", "profile"),
    [
        (acknowledges_before_the_sync, DEATH),
        (shows_what_is_not_durable, DEATH),
        (acknowledges_duplicates_at_once, None),
        (forgets_producers_when_it_restarts, DEATH),
        (has_a_disk_that_lies, DEATH),
        (never_syncs_directories_of_partitions, DEATH),
        (flushes_only_one_of_two_segments, DEATH),
        (trusts_every_stop, DEATH),
        (does_not_make_durable_what_it_recovered, DEATH),
        (loses_the_latest_record_of_a_key, COMPACTION),
        (forgets_where_logs_begin, DEATH),
        (lets_readers_sleep, DEATH),
        (does_not_ask_to_be_woken, DEATH),
        (keeps_fetches_that_are_answered, DEATH),
    ],
)
def test_the_checkers_notice_a_broker_that(
    sabotage: Callable[[Patch], None], profile: Profile | None, monkeypatch: Patch
) -> None:
    sabotage(monkeypatch)
    seeds = telling_first(TELLING.get(sabotage, 0), MOST_GAMES)
    assert any(_fails(seed, profile) for seed in seeds), f"{MOST_GAMES} games did not notice"


def _fails(seed: int, profile: Profile | None) -> bool:
    try:
        play(seed, profile=profile)
    except SimulationFailed:
        return True
    return False


@pytest.mark.parametrize("profile", [DEATH, COMPACTION])
def test_a_broker_without_sabotage_gets_through_the_same_games(profile: Profile) -> None:
    for seed in range(6):
        play(seed, profile=profile)

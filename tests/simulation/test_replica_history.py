"""The checker of replicated partitions finds each of the twelve rules broken, and takes histories that keep them."""

import contextlib
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.checkers.replica_history import Entry, PartitionHistory, Sighting
from simulation.world.broken import InvariantBroken

from cordwood.cluster.metadata.partitions import Leadership
from cordwood.cluster.metadata.rows import PartitionRow

LEADER, FOLLOWER, THIRD = 1, 2, 3


def entry(offset: int, epoch: int = 0, content: bytes = b"", sequence: int = -1) -> Entry:
    producer = (7, 0) if sequence >= 0 else None
    return Entry(offset, offset + 1, epoch, content or b"%d" % offset, producer, sequence, sequence)


@dataclass
class Disk:
    """The log of one replica, as a test writes it."""

    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    durable_end: int | None = None
    high_watermark: int = 0
    epoch: int = 0
    leads: bool = False
    life: int = 1
    truncations: int = 0
    opened: int = 0

    @property
    def end(self) -> int:
        return self.entries[-1].next if self.entries else self.start

    def cut(self, end: int) -> None:
        self.entries = [each for each in self.entries if each.next <= end]
        self.high_watermark = min(self.high_watermark, end)
        self.truncations += 1


class Cluster:
    """Three replicas and their checker."""

    def __init__(self, *, on_disk: bool = True, min_insync: int = 2) -> None:
        self.history = PartitionHistory("p-0", on_disk=on_disk)
        self.min_insync = min_insync
        self.isr_at_leader: tuple[int, ...] = ()
        """The in-sync set that the leader knows, if that is another than the row's."""
        self.disks = {broker: Disk() for broker in (LEADER, FOLLOWER, THIRD)}
        self.row = PartitionRow(LEADER, 1, 0, (1, 2, 3), (1, 2, 3))
        self.history.written(self.row, fresh=True)
        self.history.led(Leadership(LEADER, 0))
        self.disks[LEADER].leads = True

    def write(self, raises: int = 1, **changes: Any) -> None:
        self.row = self.row._replace(partition_epoch=self.row.partition_epoch + raises)._replace(**changes)
        self.history.written(self.row, fresh=False)
        self.history.led(Leadership(self.row.leader, self.row.leader_epoch))
        self.history.check_in_sync()

    def look(self, broker: int) -> None:
        disk = self.disks[broker]
        durable_end = disk.end if disk.durable_end is None else disk.durable_end
        seen = Sighting(
            disk.life,
            10 * broker + disk.opened,
            disk.leads,
            disk.epoch,
            disk.start,
            disk.end,
            durable_end,
            disk.high_watermark,
            max(disk.start, disk.high_watermark),
            disk.truncations,
            self.min_insync,
            frozenset(self.isr_at_leader or self.row.isr),
        )
        self.history.saw(broker, seen, lambda offset: [each for each in disk.entries if each.next > offset])
        self.history.check_in_sync()

    def replicate(self, *entries: Entry, to: tuple[int, ...] = (FOLLOWER, THIRD, LEADER)) -> None:
        for broker in to:
            self.disks[broker].entries += entries
            self.look(broker)

    def commit(self, *entries: Entry) -> None:
        self.replicate(*entries)
        self.disks[LEADER].high_watermark = self.disks[LEADER].end
        self.look(LEADER)

    def elect(self, broker: int, **changes: Any) -> None:
        epoch = self.row.leader_epoch + 1
        self.write(leader=broker, leader_epoch=epoch, **changes)
        self.disks[broker].leads, self.disks[broker].epoch = True, epoch
        self.look(broker)


def broken(rule: int) -> "pytest.RaisesExc[InvariantBroken]":
    return pytest.raises(InvariantBroken, match=f"rule {rule}:")


def test_a_failover_without_a_loss_keeps_all_rules() -> None:
    cluster = Cluster()
    cluster.commit(entry(0), entry(1))
    cluster.replicate(entry(2), to=(LEADER, FOLLOWER))
    cluster.elect(FOLLOWER, isr=(2, 3))
    cluster.disks[LEADER].leads = False
    cluster.disks[LEADER].epoch = 1
    cluster.disks[FOLLOWER].entries.append(entry(3, epoch=1))
    cluster.disks[THIRD].entries += [entry(2), entry(3, epoch=1)]
    cluster.look(THIRD)
    cluster.disks[FOLLOWER].high_watermark = 4
    cluster.look(FOLLOWER)
    cluster.disks[LEADER].cut(3)
    cluster.disks[LEADER].entries.append(entry(3, epoch=1))
    cluster.look(LEADER)
    cluster.write(isr=(1, 2, 3))
    assert not cluster.history.unconverged()
    assert cluster.history.committed_end == 4


def test_rule_1_two_leaders_of_an_epoch() -> None:
    cluster = Cluster()
    cluster.look(LEADER)
    cluster.disks[FOLLOWER].leads = True
    with broken(1):
        cluster.look(FOLLOWER)


def test_rule_1_a_process_that_leads_on_in_the_epoch_of_the_one_before() -> None:
    cluster = Cluster()
    cluster.look(LEADER)
    cluster.disks[LEADER].life = 2
    cluster.disks[LEADER].opened = 1
    with broken(1):
        cluster.look(LEADER)


def test_rule_1_epochs_that_fall() -> None:
    cluster = Cluster()
    cluster.write(leader=FOLLOWER, leader_epoch=3)
    with broken(1):
        cluster.write(leader=FOLLOWER, leader_epoch=2)


def test_rule_1_another_leader_in_the_same_epoch() -> None:
    with broken(1):
        Cluster().write(leader=FOLLOWER)


def test_rule_2_another_record_at_the_same_offset_and_epoch() -> None:
    cluster = Cluster()
    cluster.replicate(entry(0), to=(LEADER,))
    with broken(2):
        cluster.replicate(entry(0, content=b"another"), to=(FOLLOWER,))


def test_rule_2_a_hole() -> None:
    cluster = Cluster()
    with broken(2):
        cluster.replicate(entry(0), entry(2), to=(LEADER,))


def test_rule_4_a_leader_that_lacks_a_committed_record() -> None:
    cluster = Cluster()
    cluster.write(isr=(1, 2))
    cluster.disks[FOLLOWER].entries.append(entry(0))
    cluster.look(FOLLOWER)
    cluster.disks[LEADER].entries.append(entry(0))
    cluster.disks[LEADER].high_watermark = 1
    cluster.look(LEADER)
    cluster.look(THIRD)
    cluster.history.replicas[THIRD].excused = True
    with broken(4):
        cluster.elect(THIRD, isr=(1, 2, 3))


def test_rule_4_a_leader_with_another_record_in_the_place_of_a_committed_one() -> None:
    cluster = Cluster()
    cluster.commit(entry(0))
    cluster.disks[FOLLOWER].entries = [entry(0, epoch=1, content=b"another")]
    cluster.disks[FOLLOWER].opened += 1
    cluster.history.replicas[FOLLOWER].excused = True
    with broken(4):
        cluster.elect(FOLLOWER)


@pytest.mark.parametrize("row", [{"isr": (2, 3)}, {"isr": (1, 4)}, {"elr": (3,)}, {"isr": (1,), "elr": (4,)}])
def test_rule_5_sets_that_are_out_of_order(row: dict[str, Any]) -> None:
    with broken(5):
        Cluster().write(**row)


def test_rule_6_a_member_of_the_isr_that_lacks_a_committed_record() -> None:
    cluster = Cluster()
    cluster.replicate(entry(0), to=(FOLLOWER, LEADER))
    cluster.disks[LEADER].high_watermark = 1
    with broken(6):
        cluster.look(LEADER)


def test_rule_6_a_record_that_a_member_has_not_synced() -> None:
    cluster = Cluster()
    cluster.disks[THIRD].durable_end = 0
    with broken(6):
        cluster.commit(entry(0))


def test_under_os_a_record_counts_before_it_is_synced() -> None:
    cluster = Cluster(on_disk=False)
    cluster.disks[THIRD].durable_end = 0
    cluster.commit(entry(0))


def test_rule_6_a_replica_that_joins_too_early() -> None:
    cluster = Cluster()
    cluster.write(isr=(1, 2))
    cluster.replicate(entry(0), to=(FOLLOWER, LEADER))
    cluster.disks[LEADER].high_watermark = 1
    cluster.look(LEADER)
    with broken(6):
        cluster.write(isr=(1, 2, 3))


def test_rule_6_a_commit_while_somebody_without_the_record_is_eligible() -> None:
    cluster = Cluster(min_insync=1)
    cluster.write(isr=(1,), elr=(2,))
    cluster.replicate(entry(0), to=(LEADER,))
    cluster.disks[LEADER].high_watermark = 1
    with broken(6):
        cluster.look(LEADER)


def test_rule_7_a_high_watermark_beyond_the_end() -> None:
    cluster = Cluster()
    cluster.disks[FOLLOWER].high_watermark = 1
    with broken(7):
        cluster.look(FOLLOWER)


def test_rule_7_a_high_watermark_that_falls() -> None:
    cluster = Cluster()
    cluster.commit(entry(0), entry(1))
    cluster.disks[LEADER].high_watermark = 1
    with broken(7):
        cluster.look(LEADER)


def test_rule_8_a_cut_below_the_high_watermark() -> None:
    cluster = Cluster()
    cluster.commit(entry(0), entry(1))
    cluster.disks[FOLLOWER].high_watermark = 2
    cluster.look(FOLLOWER)
    cluster.write(lossy_epoch=1)
    cluster.disks[FOLLOWER].cut(1)
    with broken(8):
        cluster.look(FOLLOWER)


def test_rule_8_notices_a_cut_that_is_refilled_before_it_looks() -> None:
    cluster = Cluster()
    cluster.commit(entry(0), entry(1))
    cluster.disks[FOLLOWER].high_watermark = 2
    cluster.look(FOLLOWER)
    cluster.write(lossy_epoch=1)
    cluster.disks[FOLLOWER].cut(1)
    cluster.disks[FOLLOWER].entries += [entry(1, epoch=1), entry(2, epoch=1)]
    with broken(8):
        cluster.look(FOLLOWER)


def test_rule_14_a_cut_below_the_high_watermark_without_a_recorded_loss() -> None:
    cluster = Cluster()
    cluster.commit(entry(0), entry(1))
    cluster.disks[FOLLOWER].high_watermark = 2
    cluster.look(FOLLOWER)
    cluster.disks[FOLLOWER].cut(1)
    with broken(14):
        cluster.look(FOLLOWER)


def test_a_log_that_begins_anew_below_its_start_was_not_cut_below_its_high_watermark() -> None:
    """Seed 9054: a log that started inside of a batch began anew at the start of that batch, after a loss."""
    whole = Entry(0, 4, 0, b"before the loss")
    cluster = Cluster(on_disk=False)
    for disk in cluster.disks.values():
        disk.durable_end = 0
    cluster.commit(whole)
    cluster.disks[FOLLOWER] = Disk([whole], start=3, durable_end=3, high_watermark=4, opened=1)
    cluster.look(FOLLOWER)
    for broker in (LEADER, FOLLOWER, THIRD):
        cluster.history.lost_power(broker)
    cluster.disks[FOLLOWER] = Disk([whole], start=3, durable_end=3, high_watermark=3, opened=2)
    cluster.look(FOLLOWER)
    cluster.disks[FOLLOWER].entries = [Entry(0, 4, 1, b"after the loss")]
    cluster.disks[FOLLOWER].start, cluster.disks[FOLLOWER].truncations = 0, 1
    cluster.look(FOLLOWER)


def test_rule_9_a_commit_on_too_few_replicas() -> None:
    cluster = Cluster(min_insync=2)
    cluster.write(isr=(1,))
    cluster.replicate(entry(0), to=(LEADER,))
    cluster.disks[LEADER].high_watermark = 1
    with broken(9):
        cluster.look(LEADER)


@pytest.mark.parametrize(("heard", "end"), [(False, 1), (True, 1), (False, 2)], ids=["unaware", "aware", "too short"])
def test_rule_9_a_leader_may_count_a_replica_that_lost_its_disk_until_it_hears_of_it(heard: bool, end: int) -> None:
    cluster = Cluster()
    cluster.isr_at_leader = (1,) if heard else (1, 3)
    cluster.replicate(entry(0), entry(1), to=(LEADER,))
    cluster.replicate(entry(0), to=(THIRD,))
    cluster.history.lost_disk(THIRD)
    cluster.disks[THIRD] = Disk(opened=2)
    cluster.look(THIRD)
    cluster.write(isr=(1,))
    cluster.history.unfenced(THIRD)
    cluster.disks[LEADER].high_watermark = end
    with contextlib.nullcontext() if (heard, end) == (False, 1) else broken(9):
        cluster.look(LEADER)


def test_rule_11_a_gap_in_the_sequence_of_a_producer() -> None:
    cluster = Cluster()
    cluster.commit(entry(0, sequence=0), entry(1, sequence=1))
    with broken(11):
        cluster.commit(entry(2, sequence=3))


@pytest.mark.parametrize("raises", [0, 2, -1])
def test_rule_12_a_write_that_does_not_raise_the_partition_epoch_by_one(raises: int) -> None:
    with broken(12):
        Cluster().write(isr=(1, 2), raises=raises)


def test_power_takes_unsynced_records_only_if_the_topic_allows_it() -> None:
    cluster = Cluster(on_disk=True)
    cluster.commit(entry(0))
    cluster.history.lost_power(FOLLOWER)
    cluster.disks[FOLLOWER].entries, cluster.disks[FOLLOWER].opened = [], 1
    with broken(6):
        cluster.look(FOLLOWER)


def test_records_under_os_may_go_with_the_power_of_all_who_could_lead_and_not_before() -> None:
    cluster = Cluster(on_disk=False)
    for disk in cluster.disks.values():
        disk.durable_end = 0
    cluster.commit(entry(0))
    cluster.history.lost_power(LEADER)
    cluster.history.lost_power(FOLLOWER)
    assert cluster.history.committed_end == 1
    cluster.history.lost_power(THIRD)
    assert cluster.history.committed_end == 0
    assert cluster.history.lost


def test_a_leader_that_has_not_heard_of_its_deposition_may_have_records_that_its_successor_lost() -> None:
    cluster = Cluster(on_disk=False, min_insync=1)
    cluster.commit(entry(0), entry(1))
    cluster.disks[FOLLOWER].durable_end = 1
    cluster.look(FOLLOWER)
    cluster.elect(FOLLOWER, isr=(2,))
    cluster.history.lost_power(FOLLOWER)
    cluster.disks[FOLLOWER] = Disk([entry(0)], high_watermark=1, opened=1, life=2)
    cluster.elect(FOLLOWER)
    cluster.disks[FOLLOWER].entries.append(entry(1, epoch=2))
    cluster.disks[FOLLOWER].high_watermark = 2
    cluster.look(FOLLOWER)
    assert cluster.history.committed_end == 2
    cluster.look(LEADER)
    with broken(6):
        cluster.elect(LEADER, isr=(1,))


def test_an_empty_disk_beside_a_power_cut_does_not_excuse_the_loss_of_synced_records() -> None:
    cluster = Cluster(on_disk=False)
    cluster.commit(entry(0))
    cluster.disks[LEADER].durable_end = cluster.disks[FOLLOWER].durable_end = 1
    cluster.commit(entry(1))
    cluster.history.lost_disk(THIRD)
    cluster.history.lost_power(LEADER)
    cluster.history.lost_power(FOLLOWER)
    assert cluster.history.committed_end == 1


def test_a_broker_is_excused_only_until_its_fence_is_lifted() -> None:
    cluster = Cluster()
    cluster.commit(entry(0))
    cluster.history.lost_disk(THIRD)
    cluster.history.check_in_sync()
    cluster.history.unfenced(THIRD)
    with broken(6):
        cluster.history.check_in_sync()


def test_a_follower_that_begins_anew_behind_deleted_records_agrees() -> None:
    cluster = Cluster()
    cluster.write(isr=(1, 2))
    cluster.replicate(entry(0), entry(1), to=(FOLLOWER, LEADER))
    cluster.disks[LEADER].high_watermark = 2
    cluster.look(LEADER)
    cluster.disks[LEADER].start = 1
    cluster.look(LEADER)
    cluster.disks[THIRD] = Disk([entry(1)], start=1, high_watermark=1, truncations=1)
    cluster.look(THIRD)
    cluster.write(isr=(1, 2, 3))


def test_records_that_were_given_up_for_lost_kept_after_all_and_deleted_are_lacked_by_nobody() -> None:
    cluster = Cluster(on_disk=False)
    for disk in cluster.disks.values():
        disk.durable_end = 1
    cluster.commit(entry(0), entry(1), entry(2))
    for broker in cluster.disks:
        cluster.history.lost_power(broker)
    for broker in (LEADER, FOLLOWER):
        cluster.disks[broker] = Disk([entry(2)], start=2, high_watermark=2, truncations=1)
        cluster.look(broker)
    cluster.disks[THIRD].truncations += 1
    cluster.look(THIRD)
    cluster.elect(LEADER)
    cluster.disks[LEADER].high_watermark = 3
    for broker in cluster.disks:
        cluster.history.unfenced(broker)
        cluster.look(broker)
    assert cluster.history.committed_end == 3
    cluster.history.check_in_sync()


@given(st.lists(st.tuples(st.sampled_from(["append", "fetch", "advance", "elect"]), st.integers(1, 3)), max_size=60))
def test_a_cluster_that_replicates_by_the_rules_breaks_none(steps: list[tuple[str, int]]) -> None:
    """Plays the simplest protocol that keeps the rules: no in-sync set ever changes, divergent ends are cut."""
    cluster = Cluster(min_insync=3)
    for step, broker in steps:
        leader = cluster.disks[cluster.row.leader]
        disk = cluster.disks[broker]
        if step == "append":
            leader.entries.append(entry(leader.end, leader.epoch))
            cluster.look(cluster.row.leader)
        elif step == "fetch" and disk is not leader:
            shared = [one for one, other in zip(disk.entries, leader.entries, strict=False) if one == other]
            if len(shared) < len(disk.entries):
                disk.cut(len(shared))
            disk.entries += leader.entries[len(shared) :][:2]
            disk.high_watermark = max(disk.high_watermark, min(leader.high_watermark, disk.end))
            disk.epoch = leader.epoch
            cluster.look(broker)
        elif step == "advance":
            have = [
                len([one for one, other in zip(each.entries, leader.entries, strict=False) if one == other])
                for each in cluster.disks.values()
            ]
            leader.high_watermark = max(leader.high_watermark, *[min(have)])
            cluster.look(cluster.row.leader)
        elif step == "elect" and disk is not leader:
            leader.leads = False
            cluster.elect(broker)

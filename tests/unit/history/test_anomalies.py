"""Lost, doubled, changed and invented records: for each anomaly a history that has it, and its nearest neighbour."""

import json
from collections.abc import Callable

import pytest
from tests.unit.history.story import TOPIC, Story, read, write

from cordwood.history import Anomaly, InvalidHistory, ProducerRecorder, ReaderRecorder, check
from cordwood.history.events import Acks


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_history_in_which_all_is_well_is_clean(story: Story) -> None:
    producer, reader = story.producer(), story.reader()
    reader.positioned(TOPIC, 0, 0)
    write(producer, "a", 0)
    write(producer, "b", 1)
    read(reader, (0, "a"))
    read(reader, (1, "b"))
    reader.drained(TOPIC, 0)
    report = story.check()
    assert report.clean
    assert report.findings == ()
    assert report.notes == ()
    assert (report.totals.sends, report.totals.acked, report.totals.records_read) == (2, 2, 2)


class TestInconsistentOffsets:
    def test_two_readers_who_got_different_values_at_one_offset(self, story: Story) -> None:
        producer, one, two = story.producer(), story.reader("r1"), story.reader("r2")
        for value in "ab":
            producer.send(TOPIC, value)
            producer.unknown(TOPIC, value)
        read(one, (0, "a"))
        read(two, (0, "b"))
        assert story.found() == {Anomaly.INCONSISTENT_OFFSETS: 1}

    def test_the_same_offset_of_two_partitions_is_two_places(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        write(producer, "a", 0, partition=0)
        write(producer, "b", 0, partition=1)
        read(reader, (0, "a"), partition=0)
        read(reader, (0, "b"), partition=1)
        assert story.check().clean

    def test_an_acknowledgement_that_names_the_offset_of_another_value(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        write(producer, "a", 0)
        write(producer, "b", 1)
        read(reader, (0, "a"), (1, "b"))
        write(producer, "c", 1)
        finding = story.check().findings[0]
        assert finding.anomaly is Anomaly.INCONSISTENT_OFFSETS
        assert finding.sentence.startswith("orders-0 offset 1 holds 2 values: 'b' acknowledged to p1 at")
        assert "'c' acknowledged to p1" in finding.sentence

    def test_an_acks_1_record_replaced_after_its_leader_was_lost_is_excused(self, story: Story) -> None:
        producer, reader = story.producer(acks="1", idempotent=False), story.reader()
        write(producer, "a", 0)
        story.recorder.leader_lost(TOPIC, 0)
        write(producer, "b", 0)
        read(reader, (0, "b"))
        assert story.check().clean

    def test_an_acks_1_record_replaced_while_its_leader_lived_is_not(self, story: Story) -> None:
        producer, reader = story.producer(acks="1", idempotent=False), story.reader()
        story.recorder.leader_lost(TOPIC, 0)
        write(producer, "a", 0)
        write(producer, "b", 0)
        read(reader, (0, "b"))
        assert story.found() == {Anomaly.INCONSISTENT_OFFSETS: 1, Anomaly.LOST_WRITE: 1}


class TestDuplicate:
    def twice(self, story: Story, *, idempotent: bool, retries: bool) -> dict[Anomaly, int]:
        producer = story.producer(idempotent=idempotent, retries=retries)
        reader = story.reader()
        write(producer, "a", 0)
        read(reader, (0, "a"), (1, "a"))
        return story.found()

    def test_a_value_of_an_idempotent_producer_at_two_offsets(self, story: Story) -> None:
        assert self.twice(story, idempotent=True, retries=True) == {Anomaly.DUPLICATE: 1}

    def test_a_value_of_a_producer_that_was_not_asked_to_retry(self, story: Story) -> None:
        assert self.twice(story, idempotent=False, retries=False) == {Anomaly.DUPLICATE: 1}

    def test_a_producer_that_retries_without_idempotence_may_write_twice(self, story: Story) -> None:
        assert self.twice(story, idempotent=False, retries=True) == {}

    def test_a_value_in_two_partitions(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        write(producer, "a", 4, partition=0)
        read(reader, (4, "a"), partition=0)
        read(reader, (7, "a"), partition=1)
        finding = story.check().findings[0]
        assert finding.anomaly is Anomaly.DUPLICATE
        assert "producer p1" in finding.sentence
        assert "orders-0 offset 4" in finding.sentence
        assert "orders-1 offset 7" in finding.sentence

    def test_a_value_whose_send_timed_out_may_be_there_once(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        producer.send(TOPIC, "a")
        producer.unknown(TOPIC, "a")
        read(reader, (0, "a"))
        assert story.check().clean

    def test_a_value_whose_send_timed_out_may_not_be_there_twice(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        producer.send(TOPIC, "a")
        producer.unknown(TOPIC, "a")
        read(reader, (0, "a"), (1, "a"))
        assert story.found() == {Anomaly.DUPLICATE: 1}

    def test_an_offset_read_twice_by_two_readers_is_one_offset(self, story: Story) -> None:
        producer = story.producer()
        write(producer, "a", 0)
        read(story.reader("r1"), (0, "a"))
        read(story.reader("r2"), (0, "a"))
        assert story.check().clean


class TestLostWrite:
    def tell(self, story: Story, acks: Acks = "all", *, positioned: int | None = None) -> None:
        producer, reader = story.producer(acks=acks, idempotent=False), story.reader()
        if positioned is not None:
            reader.positioned(TOPIC, 0, positioned)
        for offset, value in enumerate("abc"):
            write(producer, value, None if acks == "0" else offset)

    def test_an_acknowledged_record_in_whose_place_readers_got_another_value(self, story: Story) -> None:
        self.tell(story)
        read(ReaderRecorder(story.recorder, "r1"), (0, "a"), (1, "other"), (2, "c"))
        report = story.check()
        assert report.counts == {Anomaly.INCONSISTENT_OFFSETS: 1, Anomaly.LOST_WRITE: 1}
        [lost] = [finding for finding in report.findings if finding.anomaly is Anomaly.LOST_WRITE]
        assert (lost.value, lost.who, lost.offset) == ("b", "p1", 1)
        assert "in its place 'other' was read by r1" in lost.sentence
        assert lost.sentence.endswith("and no reader got 'b' there.")

    def test_a_value_that_one_reader_got_and_another_did_not_is_not_lost(self, story: Story) -> None:
        self.tell(story)
        read(ReaderRecorder(story.recorder, "r1"), (0, "a"), (1, "other"), (2, "c"))
        read(story.reader("r2"), (0, "a"), (1, "b"), (2, "c"))
        assert story.found() == {Anomaly.INCONSISTENT_OFFSETS: 1}

    def test_the_second_of_two_values_that_were_acknowledged_at_one_offset(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        write(producer, "a", 0)
        write(producer, "b", 0)
        read(reader, (0, "a"))
        report = story.check()
        assert report.counts == {Anomaly.INCONSISTENT_OFFSETS: 1, Anomaly.LOST_WRITE: 1}
        assert report.findings[-1].value == "b"

    def test_of_two_acknowledged_values_that_readers_got_neither_is_lost(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        write(producer, "a", 0)
        write(producer, "b", 0)
        read(reader, (0, "b"))
        read(story.reader("r2"), (0, "a"))
        assert story.found() == {Anomaly.INCONSISTENT_OFFSETS: 1}

    def test_an_acknowledged_record_below_the_highest_read_that_nobody_got(self, story: Story) -> None:
        self.tell(story)
        read(ReaderRecorder(story.recorder, "r1"), (1, "b"), (2, "c"))
        report = story.check()
        assert dict(report.counts) == {Anomaly.LOST_WRITE: 1}
        finding = report.findings[0]
        assert (finding.topic, finding.partition, finding.offset) == (TOPIC, 0, 0)
        assert (finding.value, finding.who) == ("a", "p1")
        assert "acknowledged to p1 at" in finding.sentence

    def test_a_reader_that_began_behind_it_did_not_lose_it(self, story: Story) -> None:
        self.tell(story, positioned=1)
        read(ReaderRecorder(story.recorder, "r1"), (1, "b"), (2, "c"))
        assert story.check().clean

    def test_another_reader_got_it(self, story: Story) -> None:
        self.tell(story)
        read(ReaderRecorder(story.recorder, "r1"), (1, "b"), (2, "c"))
        read(story.reader("r2"), (0, "a"))
        assert story.check().clean

    def test_retention_deleted_it(self, story: Story) -> None:
        self.tell(story)
        story.recorder.log_start_moved(TOPIC, 0, 1)
        read(ReaderRecorder(story.recorder, "r1"), (1, "b"), (2, "c"))
        assert story.check().clean

    def test_acks_1_is_demanded_while_the_leader_lives(self, story: Story) -> None:
        self.tell(story, "1")
        read(ReaderRecorder(story.recorder, "r1"), (1, "b"), (2, "c"))
        assert story.found() == {Anomaly.LOST_WRITE: 1}

    def test_acks_1_is_not_demanded_once_the_leader_was_lost(self, story: Story) -> None:
        self.tell(story, "1")
        story.recorder.leader_lost(TOPIC, 0)
        read(ReaderRecorder(story.recorder, "r1"), (1, "b"), (2, "c"))
        report = story.check()
        assert report.clean
        assert any("orders-0 lost its leader" in note for note in report.notes)

    def test_acks_all_is_demanded_even_then(self, story: Story) -> None:
        self.tell(story, "all")
        story.recorder.leader_lost(TOPIC, 0)
        read(ReaderRecorder(story.recorder, "r1"), (1, "b"), (2, "c"))
        assert story.found() == {Anomaly.LOST_WRITE: 1}

    def test_acks_0_is_never_demanded(self, story: Story) -> None:
        self.tell(story, "0")
        read(ReaderRecorder(story.recorder, "r1"), (1, "b"), (2, "c"))
        report = story.check()
        assert report.clean
        assert any("acks=0" in note for note in report.notes)

    def test_a_record_between_two_runs_of_a_reader_that_moved(self, story: Story) -> None:
        self.tell(story, positioned=0)
        reader = ReaderRecorder(story.recorder, "r1")
        read(reader, (0, "a"))
        reader.positioned(TOPIC, 0, 2)
        read(reader, (2, "c"))
        assert story.check().clean

    def test_a_group_that_reads_from_the_latest_owes_nothing_before_its_first_record(self, story: Story) -> None:
        producer = story.producer()
        for offset, value in enumerate("abc"):
            write(producer, value, offset)
        read(story.reader("r1", "subscribe", start="latest"), (1, "b"), (2, "c"))
        assert story.check().clean

    def test_a_group_that_reads_from_the_earliest_does(self, story: Story) -> None:
        producer = story.producer()
        for offset, value in enumerate("abc"):
            write(producer, value, offset)
        read(story.reader("r1", "subscribe"), (1, "b"), (2, "c"))
        assert story.found() == {Anomaly.LOST_WRITE: 1}


class TestUnseen:
    def test_an_acknowledged_record_behind_the_last_read_after_a_drain(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        write(producer, "a", 0)
        write(producer, "b", 1)
        read(reader, (0, "a"))
        reader.drained(TOPIC, 0)
        report = story.check()
        assert dict(report.counts) == {Anomaly.UNSEEN: 1}
        assert "r1 had read to the end" in report.findings[0].sentence

    def test_without_a_drain_nobody_can_say(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        write(producer, "a", 0)
        write(producer, "b", 1)
        read(reader, (0, "a"))
        report = story.check()
        assert report.clean
        assert any("No reader drained orders-0" in note for note in report.notes)

    def test_what_was_acknowledged_after_the_drain_is_not_demanded(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        write(producer, "a", 0)
        read(reader, (0, "a"))
        reader.drained(TOPIC, 0)
        write(producer, "b", 1)
        assert story.check().clean

    def test_a_drain_of_a_reader_that_began_behind_it_does_not_count(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        write(producer, "a", 0)
        reader.positioned(TOPIC, 0, 1)
        reader.drained(TOPIC, 0)
        assert story.check().clean

    def test_nothing_was_ever_read_though_the_partition_was_drained(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        write(producer, "a", 0)
        reader.drained(TOPIC, 0)
        assert story.found() == {Anomaly.UNSEEN: 1}

    def test_a_send_of_unknown_outcome_is_not_demanded(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        producer.send(TOPIC, "a")
        producer.unknown(TOPIC, "a")
        producer.send(TOPIC, "b")
        reader.drained(TOPIC, 0)
        assert story.check().clean


class TestVanished:
    def test_a_record_that_was_read_lies_behind_the_end_that_a_later_reader_found(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        for offset, value in enumerate("abc"):
            write(producer, value, offset)
        read(reader, (0, "a"), (1, "b"), (2, "c"))
        later = story.reader("r2")
        later.positioned(TOPIC, 0, 0)
        read(later, (0, "a"))
        later.drained(TOPIC, 0)
        report = story.check()
        assert dict(report.counts) == {Anomaly.VANISHED: 2}
        assert "'b' was acknowledged to p1" in report.findings[0].sentence
        assert "r2 had read to the end" in report.findings[0].sentence

    def test_a_reader_that_came_to_the_end_before_the_acknowledgement_does_not_count(self, story: Story) -> None:
        producer, reader, early = story.producer(), story.reader(), story.reader("r2")
        write(producer, "a", 0)
        read(early, (0, "a"))
        early.drained(TOPIC, 0)
        write(producer, "b", 1)
        read(reader, (0, "a"), (1, "b"))
        assert story.check().clean

    def test_what_was_deleted_on_purpose_did_not_vanish(self, story: Story) -> None:
        producer, reader, later = story.producer(), story.reader(), story.reader("r2")
        write(producer, "a", 0)
        read(reader, (0, "a"))
        story.recorder.log_start_moved(TOPIC, 0, 1)
        later.drained(TOPIC, 0)
        assert story.check().clean

    def test_a_member_of_a_group_reads_on_where_another_stopped(self, story: Story) -> None:
        producer = story.producer()
        first, second = story.reader("r1", "subscribe"), story.reader("r2", "subscribe")
        write(producer, "a", 0)
        read(first, (0, "a"))
        second.drained(TOPIC, 0)
        assert story.check().clean


class TestAcknowledgedWithoutAnOffset:
    def tell(self, story: Story, acks: Acks = "all") -> ReaderRecorder:
        write(story.producer(acks=acks, idempotent=acks == "all"), "a", None)
        return story.reader()

    def test_nobody_got_it_though_the_partition_was_drained(self, story: Story) -> None:
        self.tell(story).drained(TOPIC, 0)
        report = story.check()
        assert dict(report.counts) == {Anomaly.UNSEEN: 1}
        finding = report.findings[0]
        assert (finding.offset, finding.value, finding.who) == (None, "a", "p1")
        assert "orders-0, offset unknown: 'a' was acknowledged to p1 at" in finding.sentence
        assert json.loads(report.to_json())["findings"][0]["offset"] is None

    def test_somebody_got_it(self, story: Story) -> None:
        reader = self.tell(story)
        read(reader, (7, "a"))
        reader.drained(TOPIC, 0)
        assert story.check().clean

    def test_it_was_read_in_another_partition_than_acknowledged(self, story: Story) -> None:
        reader = self.tell(story)
        read(reader, (7, "a"), partition=1)
        reader.drained(TOPIC, 0)
        assert story.found() == {Anomaly.UNSEEN: 1}

    def test_without_a_drain_nobody_can_say(self, story: Story) -> None:
        self.tell(story)
        report = story.check()
        assert report.clean
        assert any("No reader drained orders-0" in note for note in report.notes)

    def test_it_may_be_below_where_the_reader_began(self, story: Story) -> None:
        reader = self.tell(story)
        reader.positioned(TOPIC, 0, 1)
        reader.drained(TOPIC, 0)
        assert story.check().clean

    def test_it_may_be_below_where_the_log_begins_now(self, story: Story) -> None:
        reader = self.tell(story)
        story.recorder.log_start_moved(TOPIC, 0, 1)
        reader.drained(TOPIC, 0)
        assert story.check().clean

    def test_acks_0_is_never_demanded(self, story: Story) -> None:
        self.tell(story, "0").drained(TOPIC, 0)
        assert story.check().clean

    @pytest.mark.parametrize(("acks", "found"), [("all", {Anomaly.UNSEEN: 1}), ("1", {})])
    def test_the_leader_was_lost(self, story: Story, acks: Acks, found: dict[Anomaly, int]) -> None:
        reader = self.tell(story, acks)
        story.recorder.leader_lost(TOPIC, 0)
        reader.drained(TOPIC, 0)
        assert story.found() == found

    def test_the_rest_of_its_transaction_was_read(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader(isolation="read_committed")
        producer.begin("t1")
        write(producer, "a", 0, transaction="t1")
        write(producer, "b", None, transaction="t1")
        producer.committed("t1")
        read(reader, (0, "a"))
        reader.drained(TOPIC, 0)
        report = story.check()
        assert dict(report.counts) == {Anomaly.TORN_TRANSACTION: 1}
        assert "nobody got 'b' (orders-0, offset unknown)" in report.findings[0].sentence

    def test_its_transaction_was_aborted(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader(isolation="read_committed")
        producer.begin("t1")
        write(producer, "a", None, transaction="t1")
        producer.aborted("t1")
        reader.drained(TOPIC, 0)
        assert story.check().clean


class TestNeverSent:
    def test_a_value_that_no_producer_sent(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        write(producer, "a", 0)
        read(reader, (0, "a"), (1, "x"))
        assert story.found() == {Anomaly.NEVER_SENT: 1}

    def test_a_topic_whose_producers_are_not_in_the_history(self, story: Story) -> None:
        read(story.reader(), (0, "a"), (1, "x"))
        assert story.check().clean


class TestTheHistoryItself:
    def test_a_value_sent_twice_is_refused(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        write(producer, "a", 0)
        write(producer, "a", 1)
        read(reader, (0, "a"), (1, "a"))
        with pytest.raises(InvalidHistory, match="'a' is sent twice to orders"):
            story.check()

    @pytest.mark.parametrize(
        ("tell", "reason"),
        [
            (lambda s: ProducerRecorder(s.recorder, "p1").send(TOPIC, "a"), "producer 'p1' is not declared"),
            (lambda s: read(ReaderRecorder(s.recorder, "r1"), (0, "a")), "reader 'r1' is not declared"),
            (lambda s: s.producer().acked(TOPIC, "a", 0, 0), "'p1' has no send of 'a' to orders under way"),
            (lambda s: s.producer().committed("t1"), "transaction 't1' is not open"),
            (lambda s: s.producer().committing("t1"), "transaction 't1' is not open"),
            (lambda s: s.producer().send(TOPIC, "a", transaction="t1"), "transaction 't1' is not open"),
            (lambda s: s.reader(mode="subscribe").positioned(TOPIC, 0, 3), "its group positions it"),
            (lambda s: (s.producer(), s.producer()), "'p1' is declared twice"),
        ],
    )
    def test_a_history_that_breaks_the_format_is_refused_with_the_line(
        self, story: Story, tell: Callable[[Story], None], reason: str
    ) -> None:
        tell(story)
        with pytest.raises(InvalidHistory, match=rf"line {len(story.events)}: .*{reason}"):
            story.check()

    def test_of_many_findings_the_first_are_listed_and_all_are_counted(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        for offset in range(200):
            write(producer, f"v{offset}", offset)
        reader.drained(TOPIC, 0)
        report = check(story.events, listed_per_anomaly=7)
        assert dict(report.counts) == {Anomaly.UNSEEN: 200}
        assert len(report.findings) == 7
        assert "and 193 more" in report.render()
        assert json.loads(report.to_json())["counts"] == {"unseen": 200}

    def test_offsets_may_start_anywhere(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        start = 10**12 + 17
        reader.positioned(TOPIC, 0, start)
        for step in range(3):
            write(producer, f"v{step}", start + step)
        read(reader, (start, "v0"), (start + 2, "v2"))
        reader.drained(TOPIC, 0)
        assert story.found() == {Anomaly.LOST_WRITE: 1}

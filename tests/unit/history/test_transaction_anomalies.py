"""Transactions that are read aborted, early or in parts, and drains while one is open; with the nearest neighbours."""

from collections.abc import Callable

import pytest
from tests.unit.history.story import TOPIC, Story, read, write

from cordwood.history import Anomaly, ProducerRecorder, ReaderRecorder
from cordwood.history.events import Isolation


@pytest.fixture
def story() -> Story:
    return Story()


class TestAbortedRead:
    def test_a_record_that_was_refused_is_read(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        producer.send(TOPIC, "a")
        producer.failed(TOPIC, "a")
        read(reader, (0, "a"))
        report = story.check()
        assert dict(report.counts) == {Anomaly.ABORTED_READ: 1}
        assert "whose send was refused to p1" in report.findings[0].sentence

    def test_a_record_whose_outcome_is_unknown_may_be_read(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        producer.send(TOPIC, "a")
        producer.unknown(TOPIC, "a")
        read(reader, (0, "a"))
        assert story.check().clean

    @pytest.mark.parametrize(
        ("isolation", "found"),
        [("read_committed", {Anomaly.ABORTED_READ: 1}), ("read_uncommitted", {})],
    )
    def test_a_record_of_an_aborted_transaction(
        self, story: Story, isolation: Isolation, found: dict[Anomaly, int]
    ) -> None:
        producer, reader = story.producer(), story.reader(isolation=isolation)
        producer.begin("t1")
        write(producer, "a", 0, transaction="t1")
        producer.aborted("t1")
        read(reader, (0, "a"))
        assert story.found() == found

    def test_the_same_transaction_committed(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader(isolation="read_committed")
        producer.begin("t1")
        write(producer, "a", 0, transaction="t1")
        producer.committed("t1")
        read(reader, (0, "a"))
        assert story.check().clean

    def test_an_unacknowledged_record_of_an_aborted_transaction(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader(isolation="read_committed")
        producer.begin("t1")
        producer.send(TOPIC, "a", transaction="t1")
        producer.unknown(TOPIC, "a")
        producer.aborted("t1")
        read(reader, (0, "a"))
        report = story.check()
        assert dict(report.counts) == {Anomaly.ABORTED_READ: 1}
        assert "transaction 't1' of p1, aborted at" in report.findings[0].sentence


class TestEarlyRead:
    def tell(
        self,
        story: Story,
        isolation: Isolation = "read_committed",
        *,
        offset: int | None = 0,
        committing: bool = True,
    ) -> None:
        producer, reader = story.producer(), story.reader(isolation=isolation)
        producer.begin("t1")
        write(producer, "a", offset, transaction="t1")
        read(reader, (0, "a"))
        if committing:
            producer.committing("t1")
        producer.committed("t1")

    @pytest.mark.parametrize("offset", [0, None])
    def test_a_record_is_read_as_committed_before_the_commit_is_asked_for(
        self, story: Story, offset: int | None
    ) -> None:
        self.tell(story, offset=offset)
        report = story.check()
        assert dict(report.counts) == {Anomaly.EARLY_READ: 1}
        finding = report.findings[0]
        assert (finding.offset, finding.value, finding.who) == (0, "a", "r1")
        assert "'a' of transaction 't1' of p1, committed at 7 ms (line 8), was read by r1" in finding.sentence

    def test_before_its_acknowledgement(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader(isolation="read_committed")
        producer.begin("t1")
        producer.send(TOPIC, "a", transaction="t1")
        read(reader, (0, "a"))
        producer.acked(TOPIC, "a", 0, 0)
        producer.committing("t1")
        assert story.found() == {Anomaly.EARLY_READ: 1}

    def test_after_it_is_asked_for_and_before_it_is_answered(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader(isolation="read_committed")
        producer.begin("t1")
        write(producer, "a", 0, transaction="t1")
        producer.committing("t1")
        read(reader, (0, "a"))
        producer.committed("t1")
        assert story.check().clean

    def test_a_reader_of_all_records_is_never_too_early(self, story: Story) -> None:
        self.tell(story, "read_uncommitted")
        assert story.check().clean

    def test_a_history_that_does_not_say_when_commits_begin_is_not_judged_by_that(self, story: Story) -> None:
        self.tell(story, committing=False)
        assert story.check().clean


class TestDrainedWhileATransactionIsOpen:
    def tell(self, story: Story, isolation: Isolation) -> ProducerRecorder:
        """Only `before`, at offset 0, is below the last stable offset when the reader drains."""
        producer, plain = story.producer("p1"), story.producer("p2")
        write(plain, "before", 0)
        producer.begin("t1")
        write(plain, "between", 1)
        write(producer, "in it", 2, transaction="t1")
        write(plain, "behind", 3)
        reader = story.reader(isolation=isolation)
        reader.drained(TOPIC, 0)
        return producer

    def test_what_is_behind_its_first_record_is_not_demanded_of_a_reader_of_committed_records(
        self, story: Story
    ) -> None:
        self.tell(story, "read_committed").committed("t1")
        report = story.check()
        assert dict(report.counts) == {Anomaly.UNSEEN: 2}
        assert {finding.value for finding in report.findings} == {"before", "between"}
        assert any("No reader drained orders-0 after the last acknowledgement" in note for note in report.notes)

    def test_of_a_reader_of_all_records_everything_is(self, story: Story) -> None:
        self.tell(story, "read_uncommitted").committed("t1")
        assert story.found() == {Anomaly.UNSEEN: 4}

    def test_a_drain_after_its_end_demands_everything(self, story: Story) -> None:
        self.tell(story, "read_committed").committed("t1")
        ReaderRecorder(story.recorder, "r1").drained(TOPIC, 0)
        assert story.found() == {Anomaly.UNSEEN: 4}

    def test_a_transaction_in_another_topic_holds_nobody_up(self, story: Story) -> None:
        producer, plain = story.producer("p1"), story.producer("p2")
        producer.begin("t1")
        producer.send("payments", "a", transaction="t1")
        write(plain, "b", 0)
        story.reader(isolation="read_committed").drained(TOPIC, 0)
        assert story.found() == {Anomaly.UNSEEN: 1}

    def test_a_part_drained_before_the_commit_is_not_torn(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader(isolation="read_committed")
        producer.begin("t1")
        write(producer, "a", 0, partition=0, transaction="t1")
        write(producer, "b", 0, partition=1, transaction="t1")
        reader.drained(TOPIC, 1)
        producer.committed("t1")
        read(reader, (0, "a"), partition=0)
        assert story.check().clean


class TestTornTransaction:
    def tell(self, story: Story, end: Callable[[ProducerRecorder], None]) -> ReaderRecorder:
        producer = story.producer()
        producer.begin("t1")
        write(producer, "a", 0, partition=0, transaction="t1")
        write(producer, "b", 0, partition=1, transaction="t1")
        end(producer)
        return story.reader(isolation="read_committed")

    def test_a_part_of_a_committed_transaction_is_missing(self, story: Story) -> None:
        reader = self.tell(story, lambda producer: producer.committed("t1"))
        read(reader, (0, "a"), partition=0)
        reader.drained(TOPIC, 0)
        reader.drained(TOPIC, 1)
        report = story.check()
        assert dict(report.counts) == {Anomaly.TORN_TRANSACTION: 1}
        sentence = report.findings[0].sentence
        assert "transaction 't1' of p1, committed at" in sentence
        assert "nobody got 'b' (orders-1 offset 0)" in sentence

    def test_all_of_it_was_read(self, story: Story) -> None:
        reader = self.tell(story, lambda producer: producer.committed("t1"))
        read(reader, (0, "a"), partition=0)
        read(reader, (0, "b"), partition=1)
        reader.drained(TOPIC, 0)
        reader.drained(TOPIC, 1)
        assert story.check().clean

    def test_none_of_a_transaction_with_unknown_outcome_was_read(self, story: Story) -> None:
        reader = self.tell(story, lambda producer: producer.transaction_unknown("t1"))
        reader.drained(TOPIC, 0)
        reader.drained(TOPIC, 1)
        assert story.check().clean

    def test_a_part_of_a_transaction_with_unknown_outcome_was_read(self, story: Story) -> None:
        reader = self.tell(story, lambda producer: producer.transaction_unknown("t1"))
        read(reader, (0, "a"), partition=0)
        reader.drained(TOPIC, 0)
        reader.drained(TOPIC, 1)
        assert story.found() == {Anomaly.TORN_TRANSACTION: 1}

    def test_a_committed_transaction_of_which_nothing_was_read_is_unseen(self, story: Story) -> None:
        reader = self.tell(story, lambda producer: producer.committed("t1"))
        reader.drained(TOPIC, 0)
        reader.drained(TOPIC, 1)
        assert story.found() == {Anomaly.UNSEEN: 2}

    def test_an_aborted_transaction_owes_nothing(self, story: Story) -> None:
        reader = self.tell(story, lambda producer: producer.aborted("t1"))
        reader.drained(TOPIC, 0)
        reader.drained(TOPIC, 1)
        assert story.check().clean

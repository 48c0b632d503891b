"""Records in the wrong order: for each anomaly a history that has it, and its nearest neighbour that does not."""

import pytest
from tests.unit.history.story import TOPIC, Story, read, write

from cordwood.history import Anomaly, ReaderRecorder
from cordwood.history.events import Mode


@pytest.fixture
def story() -> Story:
    return Story()


class TestPollSkip:
    def tell(self, story: Story, mode: Mode = "assign") -> ReaderRecorder:
        producer = story.producer()
        for offset, value in enumerate("abc"):
            write(producer, value, offset)
        read(story.reader("all"), (0, "a"), (1, "b"), (2, "c"))
        return story.reader("r1", mode)

    def test_within_one_poll(self, story: Story) -> None:
        read(self.tell(story, "subscribe"), (0, "a"), (2, "c"))
        report = story.check()
        assert dict(report.counts) == {Anomaly.POLL_SKIP: 1}
        assert "skipped offset 1: 'b', read by all" in report.findings[0].sentence

    def test_across_polls_of_an_assigned_reader(self, story: Story) -> None:
        reader = self.tell(story)
        read(reader, (0, "a"))
        read(reader, (2, "c"))
        assert story.found() == {Anomaly.POLL_SKIP: 1}

    def test_across_polls_of_a_subscriber_a_rebalance_explains_it(self, story: Story) -> None:
        reader = self.tell(story, "subscribe")
        read(reader, (0, "a"))
        read(reader, (2, "c"))
        assert story.check().clean

    def test_a_reader_that_moved_itself(self, story: Story) -> None:
        reader = self.tell(story)
        read(reader, (0, "a"))
        reader.positioned(TOPIC, 0, 2)
        read(reader, (2, "c"))
        assert story.check().clean

    def test_the_first_record_after_the_position(self, story: Story) -> None:
        reader = self.tell(story)
        reader.positioned(TOPIC, 0, 0)
        read(reader, (1, "b"), (2, "c"))
        assert story.found() == {Anomaly.POLL_SKIP: 1}

    def test_a_gap_that_a_control_record_left(self, story: Story) -> None:
        producer, reader = story.producer(), story.reader()
        write(producer, "a", 0)
        write(producer, "b", 2)
        read(reader, (0, "a"), (2, "b"))
        assert story.check().clean

    def test_records_of_an_aborted_transaction_are_skipped_by_those_who_read_committed(self, story: Story) -> None:
        producer = story.producer()
        raw, committed = story.reader("raw"), story.reader("r1", isolation="read_committed")
        write(producer, "a", 0)
        producer.begin("t1")
        write(producer, "b", 1, transaction="t1")
        producer.aborted("t1")
        write(producer, "c", 3)
        read(raw, (0, "a"), (1, "b"), (3, "c"))
        read(committed, (0, "a"), (3, "c"))
        assert story.check().clean

    def test_but_not_those_of_a_committed_one(self, story: Story) -> None:
        producer = story.producer()
        raw, committed = story.reader("raw"), story.reader("r1", isolation="read_committed")
        write(producer, "a", 0)
        producer.begin("t1")
        write(producer, "b", 1, transaction="t1")
        producer.committed("t1")
        write(producer, "c", 3)
        read(raw, (0, "a"), (1, "b"), (3, "c"))
        read(committed, (0, "a"), (3, "c"))
        assert story.found() == {Anomaly.POLL_SKIP: 1}

    def test_what_retention_took_away_between_two_polls(self, story: Story) -> None:
        reader = self.tell(story)
        read(reader, (0, "a"))
        story.recorder.log_start_moved(TOPIC, 0, 2)
        read(reader, (2, "c"))
        assert story.check().clean


class TestNonMonotonicPoll:
    def tell(self, story: Story) -> None:
        producer = story.producer()
        for offset, value in enumerate("abc"):
            write(producer, value, offset)

    @pytest.mark.parametrize("mode", ["assign", "subscribe"])
    def test_backwards_within_one_poll(self, story: Story, mode: Mode) -> None:
        self.tell(story)
        read(story.reader("r1", mode), (0, "a"), (1, "b"), (2, "c"), (1, "b"))
        report = story.check()
        assert dict(report.counts) == {Anomaly.NON_MONOTONIC_POLL: 1}
        assert "r1 got orders-0 offset 1 ('b') after offset 2, within one poll" in report.findings[0].sentence

    def test_the_same_offset_again_within_one_poll(self, story: Story) -> None:
        self.tell(story)
        read(story.reader("r1"), (0, "a"), (1, "b"), (1, "b"), (2, "c"))
        assert story.found() == {Anomaly.NON_MONOTONIC_POLL: 1}

    def test_backwards_across_polls_of_an_assigned_reader(self, story: Story) -> None:
        self.tell(story)
        reader = story.reader()
        read(reader, (0, "a"), (1, "b"))
        read(reader, (1, "b"), (2, "c"))
        assert story.found() == {Anomaly.NON_MONOTONIC_POLL: 1}

    def test_backwards_across_polls_of_a_subscriber(self, story: Story) -> None:
        self.tell(story)
        reader = story.reader("r1", "subscribe")
        read(reader, (0, "a"), (1, "b"))
        read(reader, (1, "b"), (2, "c"))
        assert story.check().clean

    def test_backwards_because_the_reader_moved_itself(self, story: Story) -> None:
        self.tell(story)
        reader = story.reader()
        read(reader, (0, "a"), (1, "b"))
        reader.positioned(TOPIC, 0, None)
        read(reader, (1, "b"), (2, "c"))
        assert story.check().clean

    def test_a_record_below_the_position_that_was_asked_for(self, story: Story) -> None:
        self.tell(story)
        reader = story.reader()
        reader.positioned(TOPIC, 0, 1)
        read(reader, (0, "a"), (1, "b"), (2, "c"))
        assert story.found() == {Anomaly.NON_MONOTONIC_POLL: 1}


class TestNonMonotonicSend:
    def overlapping(self, story: Story, offsets: tuple[int, int], *, idempotent: bool, retries: bool) -> None:
        producer = story.producer(idempotent=idempotent, retries=retries)
        producer.send(TOPIC, "a")
        producer.send(TOPIC, "b")
        producer.acked(TOPIC, "a", 0, offsets[0])
        producer.acked(TOPIC, "b", 0, offsets[1])

    def test_records_of_an_idempotent_producer_in_another_order_than_sent(self, story: Story) -> None:
        self.overlapping(story, (1, 0), idempotent=True, retries=True)
        report = story.check()
        assert dict(report.counts) == {Anomaly.NON_MONOTONIC_SEND: 1}
        assert "p1 sent 'a'" in report.findings[0].sentence
        assert "orders-0 has it at offset 1, behind offset 0" in report.findings[0].sentence

    def test_in_the_order_sent(self, story: Story) -> None:
        self.overlapping(story, (0, 1), idempotent=True, retries=True)
        assert story.check().clean

    def test_a_producer_that_does_not_retry_keeps_its_order_too(self, story: Story) -> None:
        self.overlapping(story, (1, 0), idempotent=False, retries=False)
        assert story.found() == {Anomaly.NON_MONOTONIC_SEND: 1}

    def test_a_producer_that_retries_without_idempotence_may_reorder_what_is_in_flight(self, story: Story) -> None:
        self.overlapping(story, (1, 0), idempotent=False, retries=True)
        assert story.check().clean

    def test_but_not_what_was_acknowledged_before_the_next_send(self, story: Story) -> None:
        producer = story.producer(idempotent=False)
        write(producer, "a", 1)
        write(producer, "b", 0)
        assert story.found() == {Anomaly.NON_MONOTONIC_SEND: 1}

    def test_two_producers_owe_each_other_no_order(self, story: Story) -> None:
        one, two = story.producer("p1"), story.producer("p2")
        one.send(TOPIC, "a")
        two.send(TOPIC, "b")
        two.acked(TOPIC, "b", 0, 0)
        one.acked(TOPIC, "a", 0, 1)
        assert story.check().clean

    def test_two_partitions_owe_each_other_no_order(self, story: Story) -> None:
        producer = story.producer()
        write(producer, "a", 1, partition=0)
        write(producer, "b", 0, partition=1)
        assert story.check().clean

    @pytest.mark.parametrize(("idempotent", "found"), [(True, {Anomaly.NON_MONOTONIC_SEND: 1}), (False, {})])
    @pytest.mark.parametrize("end", ["unknown", "acked"])
    def test_a_record_without_a_known_offset_is_ordered_where_it_was_read_if_its_producer_is_idempotent(
        self, story: Story, end: str, idempotent: bool, found: dict[Anomaly, int]
    ) -> None:
        producer = story.producer(idempotent=idempotent)
        producer.send(TOPIC, "a")
        if end == "unknown":
            producer.unknown(TOPIC, "a")
        else:
            producer.acked(TOPIC, "a", 0, None)
        write(producer, "b", 0)
        read(story.reader(), (0, "b"), (1, "a"))
        assert story.found() == found

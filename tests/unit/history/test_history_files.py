"""A history in files: written by the recorder, read by the checker, merged, torn, and refused when it is not one."""

import itertools
import json
import threading
from pathlib import Path

import pytest

from cordwood.history import Anomaly, InvalidHistory, Recorder, check, events
from cordwood.history.events import Event, parse, write
from cordwood.history.recorder import value_text

EVERY_KIND: list[Event] = [
    events.Producer(1.5, "p", "all", True, False),
    events.Reader(2, "r", "assign", "read_committed", "earliest"),
    events.TransactionBegun(3, "p", "t"),
    events.Send(4, "p", "orders", "a\n\u2028ü", "t"),
    events.Send(4, "p", "orders", "b", None),
    events.Acked(5, "p", "orders", "a\n\u2028ü", 0, 17),
    events.Acked(5, "p", "orders", "b", 0, None),
    events.Failed(6, "p", "orders", "c"),
    events.Unknown(7, "p", "orders", "d"),
    events.TransactionCommitting(8, "p", "t"),
    events.TransactionCommitted(8, "p", "t"),
    events.TransactionAborted(8, "p", "u"),
    events.TransactionUnknown(8, "p", "v"),
    events.Positioned(9, "r", "orders", 0, 5),
    events.Positioned(9, "r", "orders", 0, None),
    events.Poll(10, "r", "orders", 0, ((17, "a"), (18, "b"))),
    events.Poll(10, "r", "orders", 0, ()),
    events.Drained(11, "r", "orders", 0),
    events.LogStartMoved(12, "orders", 0, 3),
    events.LeaderLost(13, "orders", 0),
]


def write_file(path: Path, *told: Event) -> None:
    path.write_text("".join(write(event) + "\n" for event in told))


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: type(event).__name__)
def test_every_event_survives_being_written(event: Event) -> None:
    line = write(event)
    assert "\n" not in line
    assert parse(line) == event


def test_every_kind_of_event_is_tried_above() -> None:
    assert {type(event) for event in EVERY_KIND} == set(events.NAMES)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"type":[]}', "the type .. is not one of"),
        ('{"type":"sent"}', "the type 'sent' is not one of"),
        ('{"type":"drained","at_ms":1,"who":"r","topic":"t"}', "a drained needs 'partition'"),
        ('{"type":"drained","at_ms":1,"who":"r","topic":"t","partition":-1}', "'partition' must be a whole number"),
        ('{"type":"drained","at_ms":true,"who":"r","topic":"t","partition":1}', "'at_ms' must be a number"),
        ('{"type":"drained","at_ms":1e300,"who":"r","topic":"t","partition":1}', "'at_ms' must be .* the year 9999"),
        ('{"type":"drained","at_ms":NaN,"who":"r","topic":"t","partition":1}', "'at_ms' must be .* the year 9999"),
        ('{"type":"drained","at_ms":1,"who":"r","topic":"\\ud800","partition":1}', "'topic' must be a text"),
        (
            f'{{"type":"log_start_moved","at_ms":1,"topic":"t","partition":1,"offset":{2**63}}}',
            "'offset' must be a whole",
        ),
        (f'{{"type":"poll","at_ms":1,"who":"r","topic":"t","partition":1,"records":[[{2**63},"a"]]}}', "a list of"),
        ("[" * 100_000, "not JSON"),
        ('{"type":"poll","at_ms":1,"who":"r","topic":"t","partition":1,"records":[[1]]}', "a list of"),
        ('{"type":"producer","at_ms":1,"who":"p","acks":1,"idempotent":true,"retries":true}', "'acks' must be one of"),
    ],
)
def test_a_line_that_is_not_an_event_is_refused(line: str, reason: str) -> None:
    with pytest.raises(InvalidHistory, match=reason):
        parse(line)


def test_the_last_offset_and_the_last_time_can_be_checked() -> None:
    told: list[Event] = [events.Reader(events.LATEST_MS, "r", "assign", "read_uncommitted", "earliest")]
    for offset in (5, events.MAX_OFFSET, 7):
        told.append(events.Poll(events.LATEST_MS, "r", "orders", 0, ((offset, "a"),)))
    report = check([parse(write(event)) for event in told])
    assert set(report.counts) == {Anomaly.DUPLICATE, Anomaly.POLL_SKIP, Anomaly.NON_MONOTONIC_POLL}
    assert "at 9999-12-31 23:59:59.000 UTC" in report.render()


def test_different_values_are_written_differently() -> None:
    pieces = (b"\\", b"x", b"5c", b"ff", b"\xff")
    values = [b"".join(parts) for count in range(6) for parts in itertools.product(pieces, repeat=count)]
    assert len({value_text(value) for value in values}) == len(values)


@pytest.mark.parametrize("text", ["plain", "ü", r'{"path":"C:\\new"}', r"\xff", r"\\x5c"])
def test_a_text_is_written_as_its_bytes_are(text: str) -> None:
    assert value_text(text) == value_text(text.encode())


def test_a_recorded_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with Recorder(path) as recorder:
        producer = recorder.producer("p1")
        reader = recorder.reader("r1")
        producer.send("orders", b"a")
        producer.acked("orders", b"a", 0, 0)
        producer.send("orders", b"\xff")
        producer.acked("orders", b"\xff", 0, 1)
        reader.polled("orders", 0, [(0, b"a")])
        reader.drained("orders", 0)
    report = check(path)
    assert dict(report.counts) == {Anomaly.UNSEEN: 1}
    finding = report.findings[0]
    assert finding.value == r"\xff"
    assert finding.sentence.startswith(r"orders-0 offset 1: '\\xff' was acknowledged to p1 at 20")
    assert "(line 6)" in finding.sentence
    written = json.loads(report.to_json())
    assert written["clean"] is False
    assert written["findings"][0]["offset"] == 1
    assert finding.sentence in report.render()


def test_half_a_last_line_is_ignored_and_said(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(write(events.Producer(1, "p", "all", True, True)) + '\n{"type":"send","at_')
    report = check(path)
    assert report.clean
    assert report.notes == (f"{path}:2 is half a line, as a killed recorder leaves it: ignored.",)


def test_half_a_line_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"type":"send","at_\n' + write(events.Producer(1, "p", "all", True, True)) + "\n")
    with pytest.raises(InvalidHistory, match=r"history.jsonl:1: not JSON"):
        check(path)


def test_the_histories_of_two_processes_are_merged_by_their_clocks(tmp_path: Path) -> None:
    sends, reads = tmp_path / "sends.jsonl", tmp_path / "reads.jsonl"
    write_file(
        sends,
        events.Producer(1, "p", "all", True, True),
        events.Send(2, "p", "orders", "a", None),
        events.Acked(4, "p", "orders", "a", 0, 0),
        events.Send(8, "p", "orders", "b", None),
        events.Acked(9, "p", "orders", "b", 0, 1),
    )

    def reader_drains_at(at_ms: float) -> None:
        write_file(
            reads,
            events.Reader(3, "r", "assign", "read_uncommitted", "earliest"),
            events.Poll(5, "r", "orders", 0, ((0, "a"),)),
            events.Drained(at_ms, "r", "orders", 0),
        )

    reader_drains_at(6)
    assert check(sends, reads).clean
    reader_drains_at(10)
    report = check(sends, reads)
    assert dict(report.counts) == {Anomaly.UNSEEN: 1}
    assert f"({sends}:5)" in report.findings[0].sentence
    assert f"({reads}:3)" in report.findings[0].sentence


def test_events_of_a_generator_are_read_twice_all_the_same() -> None:
    told: list[Event] = [
        events.Producer(1, "p", "all", True, True),
        events.Send(2, "p", "orders", "a", None),
        events.Acked(4, "p", "orders", "a", 0, 0),
        events.Reader(5, "r", "assign", "read_uncommitted", "earliest"),
        events.Drained(6, "r", "orders", 0),
    ]
    report = check(event for event in told)
    assert len(report.findings) == 1


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with Recorder(path) as recorder:

        def work(number: int) -> None:
            producer = recorder.producer(f"p{number}")
            for step in range(200):
                producer.send("orders", f"{number}-{step}")
                producer.acked("orders", f"{number}-{step}", number, step)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    report = check(path)
    assert report.totals.acked == 800
    assert report.clean


def test_a_recorder_needs_a_place_to_write_to() -> None:
    with pytest.raises(ValueError, match="either a path or a sink"):
        Recorder()

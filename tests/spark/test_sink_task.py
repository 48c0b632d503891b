"""Attempts of tasks against a real broker, without Spark around them: the promise of each, and the winner."""

import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.conftest import await_topic
from tests.deadline import eventually
from tests.spark.sink_query import COLUMNS, Query, batch_of

from cordwood.client.errors import ClientError
from cordwood.spark.checkpoints.owner import local_directory
from cordwood.spark.sink.options import Guarantee
from cordwood.spark.sink.protocol import OlderBatch, SinkFailure, TaskReport
from cordwood.spark.sink.stream_writer import StreamSink

pytestmark = pytest.mark.landing

SHORT_MS = 1500
RENEWED_MS = 5000
"""Long enough for a machine that stalls for a while: four renewals fit into it."""
LONG_MS = 60_000


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that often looks for timed out transactions."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with BrokerProcess(tmp_path_factory.mktemp("quick") / "data", settings=settings) as process:
        yield process


@pytest.fixture
def topic(quick_broker: BrokerProcess) -> str:
    admin = AdminClient({"bootstrap.servers": quick_broker.bootstrap})
    name = f"topic-{uuid.uuid4().hex[:12]}"
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])[name].result(timeout=120)
    await_topic(admin, name, 1)
    return name


MakeQuery = Callable[..., Query]


@pytest.fixture
def query(quick_broker: BrokerProcess, topic: str) -> MakeQuery:
    def make(timeout_ms: int = LONG_MS, topic: str = topic, **options: str) -> Query:
        return Query(
            quick_broker.bootstrap,
            topic,
            **{"kafka.transaction.timeout.ms": str(timeout_ms), "kafka.linger.ms": "0", **options},
        )

    return make


class Held:
    """Rows that come when the test lets them."""

    def __init__(self, rows: list[str]) -> None:
        self.rows = rows
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        for row in self.rows:
            yield batch_of([row])
            self.begun.set()
            assert self.go_on.wait(60)

    def later(self) -> Iterator[Any]:
        """No rows before the test lets them come: Spark may be sorting."""
        self.begun.set()
        assert self.go_on.wait(60)
        yield batch_of(self.rows)


class InBackground:
    """An attempt that goes on while the test does other things."""

    def __init__(self, work: Callable[[], TaskReport]) -> None:
        self.report: TaskReport | None = None
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()

    def _run(self, work: Callable[[], TaskReport]) -> None:
        try:
            self.report = work()
        except BaseException as failure:
            self.failure = failure

    def wait(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()


def test_rows_are_visible_when_the_driver_has_decided_and_not_before(query: MakeQuery) -> None:
    stream = query()
    reports = [stream.task(0, 0, ["a", "b"]), stream.task(0, 1, ["c"]), stream.task(0, 2, [])]
    assert [report.rows for report in reports] == [2, 1, 0]
    assert reports[0].bytes > 0
    assert reports[2].slot is None
    assert stream.visible() == []
    stream.commit(0, *reports, None)
    assert stream.visible() == ["a", "b", "c"]
    assert stream.open_slots == 0


def test_a_missing_topic_is_created_only_for_a_write_that_may(query: MakeQuery, quick_broker: BrokerProcess) -> None:
    missing = f"missing-{uuid.uuid4().hex[:12]}"
    careful = query(topic=missing, createTopics="false", **{"kafka.max.block.ms": "50"})
    with pytest.raises(SinkFailure, match=rf"Topic '{missing}' does not exist.* \(createTopics=true\)"):
        careful.task(0, 0, ["a"])
    admin = AdminClient({"bootstrap.servers": quick_broker.bootstrap})
    assert missing not in admin.list_topics(timeout=60).topics
    stream = query(topic=missing)
    stream.commit(0, stream.task(0, 0, ["a"]))
    assert stream.visible() == ["a"]


def test_a_repeated_batch_is_read_to_its_end_and_not_written_whatever_it_holds(query: MakeQuery) -> None:
    stream = query(unknownQuery="begin", otherRowCount="skip")
    stream.commit(4, stream.task(4, 0, ["a"]))
    more_than_before = iter([batch_of(["x", "y"]), batch_of(["z"])])
    again = stream.task(4, 0, more_than_before)
    assert next(more_than_before, None) is None
    assert (again.rows, again.skipped_rows, again.slot) == (0, 3, None)
    stream.commit(4, again, stream.task(4, 1, ["another task than before"]))
    assert stream.visible() == ["a"]


def test_a_batch_without_rows_is_decided_too(query: MakeQuery) -> None:
    stream = query(otherRowCount="skip")
    stream.commit(0, stream.task(0, 0, []))
    stream.commit(0, stream.task(0, 0, ["not that time"]))
    assert stream.visible() == []


def test_a_batch_older_than_the_last_is_refused_or_passed_over(query: MakeQuery) -> None:
    stream = query(unknownQuery="begin")
    stream.commit(5, stream.task(5, 0, ["a"]))
    with pytest.raises(OlderBatch, match="older than batch 5"):
        stream.task(4, 0, ["b"])
    patient = query(olderBatches="skip")
    patient.family = stream.family
    assert patient.task(4, 0, ["b"]).skipped_rows == 1


def test_of_two_attempts_only_the_one_that_is_counted_is_visible(query: MakeQuery) -> None:
    stream = query()
    stream.task(0, 0, ["of the loser"], attempt=0)
    winner = stream.task(0, 0, ["of the winner"], attempt=1)
    stream.commit(0, winner)
    assert stream.visible() == ["of the winner"]
    assert stream.open_slots == 0


def test_an_attempt_that_fails_ends_its_own_transaction_and_no_other(query: MakeQuery) -> None:
    stream = query()
    kept = stream.task(0, 0, ["kept"])

    def failing() -> Iterator[Any]:
        yield batch_of(["lost"])
        raise ValueError("the rows end here")

    with pytest.raises(ValueError, match="the rows end here"):
        stream.task(0, 1, failing())
    assert stream.open_slots == 1
    stream.commit(0, kept, stream.task(0, 1, ["second try"], attempt=1))
    assert stream.visible() == ["kept", "second try"]


def test_a_zombie_that_goes_on_after_the_decision_writes_nothing(query: MakeQuery) -> None:
    stream = query()
    held = Held(["of a zombie", "more of it"])
    zombie = InBackground(lambda: stream.task(0, 0, iter(held), attempt=0))
    assert held.begun.wait(60)
    stream.commit(0, stream.task(0, 0, ["a"], attempt=1))
    held.go_on.set()
    zombie.wait()
    assert isinstance(zombie.failure, ClientError), zombie.failure
    assert stream.visible() == ["a"]
    assert stream.open_slots == 0


def test_the_driver_that_decides_second_changes_nothing(query: MakeQuery) -> None:
    stream = query()
    zombies = stream.task(0, 0, ["of the old driver"])
    successors = stream.task(0, 0, ["of the new driver"])
    stream.commit(0, successors)
    stream.commit(0, zombies)
    stream.abort(0, zombies)
    assert stream.visible() == ["of the new driver"]


def test_an_abort_frees_everything_and_the_batch_can_be_tried_again(query: MakeQuery) -> None:
    stream = query()
    report = stream.task(0, 0, ["a"])
    stream.task(0, 1, ["nobody hears of this one"])
    stream.abort(0, report, None)
    assert stream.open_slots == 0
    with pytest.raises(SinkFailure, match="was not committed"):
        stream.commit(0, report)
    stream.commit(0, stream.task(0, 0, ["b"]))
    assert stream.visible() == ["b"]


def test_a_driver_without_a_single_report_finds_the_query_in_its_checkpoint(query: MakeQuery, tmp_path: Path) -> None:
    stream = query(checkpointLocation=f"file://{tmp_path}")
    (tmp_path / "metadata").write_text(f'{{"id":"{stream.family}"}}')
    stream.task(0, 0, ["of a task that was killed before it could report"])
    assert stream.open_slots == 1
    StreamSink(stream.options, COLUMNS).abort([None, None], 0)
    assert stream.open_slots == 0


@pytest.mark.parametrize("checkpoint", ["hdfs://somewhere/x", "s3a://bucket/x", "/nowhere/at/all", "", None])
def test_a_checkpoint_that_is_elsewhere_says_nothing(checkpoint: str | None) -> None:
    assert local_directory(checkpoint) is None


def test_a_task_that_still_runs_keeps_alive_those_that_are_done(query: MakeQuery) -> None:
    between, before = query(timeout_ms=RENEWED_MS), query(timeout_ms=RENEWED_MS)
    done = [stream.task(0, 0, ["done long ago"]) for stream in (between, before)]
    rows, first_row = Held(["slow", "slower"]), Held(["late"])
    slow = InBackground(lambda: between.task(0, 1, iter(rows)))
    slow_to_begin = InBackground(lambda: before.task(0, 1, first_row.later()))
    eventually(lambda: between.open_slots == 2, within_s=60, what="the slow task's first row")
    assert first_row.begun.wait(60)
    with pytest.raises(AssertionError):
        eventually(
            lambda: (between.open_slots, before.open_slots) != (2, 1),
            within_s=RENEWED_MS / 1000 * 1.4,
            what="a slot times out",
        )
    for stream, first, held, task in ((between, done[0], rows, slow), (before, done[1], first_row, slow_to_begin)):
        held.go_on.set()
        task.wait()
        assert task.failure is None
        stream.commit(0, first, task.report)
    assert sorted(between.visible()) == ["done long ago", "done long ago", "late", "slow", "slower"]


def test_a_topic_with_small_batches_is_written_with_a_small_batch_size_and_the_error_says_so(
    query: MakeQuery, quick_broker: BrokerProcess
) -> None:
    topic = f"small-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": quick_broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": "2000"})])[topic].result(timeout=120)
    rows = ["x" * 500] * 10
    with pytest.raises(SinkFailure, match=r"MESSAGE_TOO_LARGE.*'kafka\.batch\.size'"):
        query(topic=topic).task(0, 0, rows)
    small = query(topic=topic, **{"kafka.batch.size": "1500"})
    small.commit(0, small.task(0, 0, rows))
    assert small.visible() == rows


def test_what_nobody_keeps_alive_times_out_and_the_commit_says_so(query: MakeQuery) -> None:
    stream = query(timeout_ms=SHORT_MS)
    report = stream.task(0, 0, ["a"])
    eventually(lambda: stream.open_slots == 0, within_s=60, what="the slot times out")
    with pytest.raises(SinkFailure, match=r"kafka\.transaction\.timeout\.ms"):
        stream.commit(0, report)
    assert stream.visible() == []
    stream.commit(0, stream.task(0, 0, ["b"]))
    assert stream.visible() == ["b"]


def test_a_broker_that_restarts_in_between_changes_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", keep_port=True) as broker:
        stream = Query(broker.bootstrap, "restarted")
        for batch_id in range(3):
            reports = [stream.task(batch_id, task, [f"{batch_id}-{task}"]) for task in range(2)]
            broker.kill()
            broker.start()
            stream.commit(batch_id, *reports)
            broker.kill()
            broker.start()
            stream.commit(batch_id, *[stream.task(batch_id, task, ["again"]) for task in range(2)])
        assert stream.visible() == [f"{batch_id}-{task}" for batch_id in range(3) for task in range(2)]


# Without families


def test_a_task_of_its_own_transaction_is_skipped_when_its_batch_was_committed(query: MakeQuery) -> None:
    stream = query(exactlyOnce="task")
    first, second = stream.task(3, 0, ["a"]), stream.task(3, 1, ["b"])
    assert first.guarantee is Guarantee.TASK
    assert stream.visible() == []
    # The driver dies between the two commits: the batch is half visible until it is repeated.
    stream.commit(3, first)
    assert stream.visible() == ["a"]
    again = [stream.task(3, 0, ["a"]), stream.task(3, 1, ["b"])]
    assert [report.skipped_rows for report in again] == [1, 0]
    stream.commit(3, *again)
    assert stream.visible() == ["a", "b"]
    with pytest.raises(SinkFailure):
        stream.commit(3, second)
    stream.commit(4, stream.task(4, 0, ["c"]), stream.task(4, 1, []))
    assert stream.visible() == ["a", "b", "c"]


def test_a_new_attempt_of_a_task_of_its_own_transaction_fences_the_one_before(query: MakeQuery) -> None:
    stream = query(exactlyOnce="task")
    old = stream.task(0, 0, ["old"])
    new = stream.task(0, 0, ["new"], attempt=1)
    with pytest.raises(SinkFailure):
        stream.commit(0, old)
    stream.commit(0, new)
    assert stream.visible() == ["new"]


def test_at_least_once_is_visible_at_once_and_again_when_repeated(query: MakeQuery) -> None:
    stream = query(exactlyOnce="false")
    stream.commit(0, stream.task(0, 0, ["a"]))
    stream.task(0, 0, ["a"])
    assert stream.visible() == ["a", "a"]

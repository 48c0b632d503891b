"""Work on records in another process: its result, its failures, its end. The processes are real."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cordwood.log.reading.apart import Apart, ProcessEnded
from cordwood.model.errors import StorageFailure
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.build import build_batch
from cordwood.records.corruption import CorruptRecords
from cordwood.records.preparing import Task, prepare_each
from cordwood.records.record_rules import Refusal, rules_of
from cordwood.records.records import first_as_late

NOW_MS = 1_700_000_000_000
PATIENCE_S = 60.0


def end_this_process() -> None:
    os._exit(3)


def test_the_work_is_done_in_another_process_and_the_process_is_kept_for_more() -> None:
    apart = Apart()
    first = apart.call(os.getpid)
    assert first != os.getpid()
    assert apart.call(os.getpid) == first
    apart.close()


def test_values_go_there_and_back_and_exceptions_come_back() -> None:
    apart = Apart()
    batch = bytes(build_batch([(NOW_MS, b"key", None, ()), (NOW_MS + 5, None, None, ())]))
    rules = rules_of(TopicSettings(cleanup_policy=("compact",)), NOW_MS)
    (refusal,) = apart.call(prepare_each, [Task(batch, rules, None)], 0)
    assert isinstance(refusal, Refusal)
    assert [index for index, _ in refusal.record_errors] == [1]
    assert apart.call(first_as_late, batch, NOW_MS + 1, 0)[:2] == (1, NOW_MS + 5)
    with pytest.raises(CorruptRecords):
        apart.call(first_as_late, batch[:-1], 0, 0)
    apart.close()


def test_a_process_that_was_killed_while_idle_is_replaced() -> None:
    apart = Apart()
    first = apart.call(os.getpid)
    os.kill(first, signal.SIGKILL)
    second = apart.call(os.getpid)
    assert second not in (first, os.getpid())
    apart.close()


def test_work_that_ends_its_process_twice_is_an_error_and_the_next_work_is_done() -> None:
    apart = Apart()
    with pytest.raises(ProcessEnded, match="exit code 3"):
        apart.call(end_this_process)
    assert apart.call(os.getpid) != os.getpid()
    apart.close()


def test_work_that_wants_too_much_memory_fails_and_harms_nobody() -> None:
    apart = Apart()
    with pytest.raises(MemoryError):
        apart.call(bytes, 2 * 1024**3)
    assert apart.call(len, b"abc") == 3
    apart.close()


def test_no_more_processes_than_allowed_work_at_a_time() -> None:
    apart = Apart(processes=2)
    with ThreadPoolExecutor(6) as threads:
        seen = set(threads.map(lambda _: apart.call(_pid_after_a_while), range(6)))
    assert 1 <= len(seen) <= 2
    apart.close()


def test_closing_ends_work_that_is_under_way() -> None:
    apart = Apart()
    apart.call(os.getpid)
    failures: list[Exception] = []

    def sleep_there() -> None:
        try:
            apart.call(time.sleep, 3600.0)
        except StorageFailure as failure:
            failures.append(failure)

    thread = threading.Thread(target=sleep_there)
    thread.start()
    while not apart.at_work:
        time.sleep(0.001)
    apart.close()
    thread.join(PATIENCE_S)
    assert len(failures) == 1
    with pytest.raises(ProcessEnded):
        apart.call(os.getpid)


def _pid_after_a_while() -> int:
    time.sleep(0.05)
    return os.getpid()

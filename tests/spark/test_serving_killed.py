"""kill -9 under load of each kind of process of `cordwood pipeline serve`: the serving process, its worker, Java, a
Python worker."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.spark.conftest import Produce
from tests.spark.serving_stage import NUMBERS, WITHIN_S, Serve, is_gone, numbers, serving, worker_of, written

STEP = 20
PAUSE_S = 0.05


@pytest.fixture
def serve(tmp_path: Path, broker: RunningBroker) -> Iterator[Serve]:
    with serving(tmp_path, broker.bootstrap) as made:
        yield made


class Load:
    """A producer that never rests, so that batches are under way whenever a process dies."""

    def __init__(self, put: Produce, topic: str) -> None:
        self.sent = 0
        self._put = put
        self._topic = topic
        self._stopping = threading.Event()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def _work(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            self._put(self._topic, numbers(range(self.sent, self.sent + STEP)))
            self.sent += STEP


def processes_of(worker: int) -> dict[int, str]:
    """The commands of a worker's session, which Spark and its Python processes belong to."""
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and os.getsid(int(entry.name)) == worker and not is_gone(int(entry.name)):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def test_each_record_is_there_once_whichever_process_is_killed(
    serve: Serve, broker: RunningBroker, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic(2)
    one, two = (f"{name}-{topic[-6:]}" for name in ("one", "two"))
    serve.write(
        one,
        f'topic("{topic}", {NUMBERS})',
        f'{{"rows": table("{one}"), "out": topic("{one}.out")}}',
        result='{"rows": numbers, "out": numbers}',
    )
    serve.write(two, f'output("{one}", "{one}.out", {NUMBERS})', f'table("{two}")')
    load = Load(put, topic)
    workers = set()

    def goes_on() -> None:
        """Waits until both have finished two more batches."""
        before = {name: len(serve.events("batch", name)) for name in (one, two)}

        def has_done_some() -> bool:
            assert serve.process is not None
            assert serve.process.poll() is None, serve.output.read_text()[-4000:]
            return all(len(serve.events("batch", name)) >= count + 2 for name, count in before.items())

        eventually(has_done_some, within_s=WITHIN_S, what="batches of both", every_s=0.2)
        workers.add(worker_of(serve))

    def kill(part: str) -> None:
        """Kills the newest process of the worker's session whose command has this part."""
        there = {pid for pid, command in processes_of(worker_of(serve)).items() if part in command}
        os.kill(max(there), signal.SIGKILL)
        goes_on()

    with load.at_work():
        serve.start()
        goes_on()
        kill("workers.daemon pyspark.worker")
        kill("/bin/java")
        kill("serving.worker")
        assert serve.process is not None
        serve.process.kill()
        serve.process.wait()
        serve.start()
        goes_on()
    serve.process.send_signal(signal.SIGTERM)
    assert serve.wait() == 0
    serve.start("--once")
    assert serve.wait() == 0, serve.output.read_text()[-4000:]

    expected = list(range(load.sent))
    assert (serve.rows(one), serve.rows(two)) == (expected, expected)
    assert written(f"{one}.out", broker.bootstrap) == expected
    assert len(workers) >= 3, "of Java, of the worker and of the serving process each death ends a worker"
    for worker in workers:
        eventually(lambda worker=worker: processes_of(worker), to_be={}, what="the end of all its processes")  # type: ignore[misc]

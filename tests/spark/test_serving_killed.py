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


LOOPS = """
import os
from pathlib import Path
from cordwood.pipelines import *
from pyspark.sql import functions as F

@pipeline("{name}", version=1, inputs=topic("{topic}", value=json("n int not null")), outputs=table("{name}"),
          spark={{"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.memory": "512m"}})
def loops(numbers):
    @F.udf("int")
    def same(n):
        Path("{here}/at-work").touch()
        while os.path.exists("{here}/loops"):
            pass
        return n
    return numbers.select(same("n").alias("n"))
"""


def test_the_worker_of_a_killed_serve_is_gone_with_java_in_mid_batch_and_the_next_one_goes_on(
    serve: Serve, make_topic: MakeTopic, put: Produce
) -> None:
    """A worker that went on with its batch, which never ends here, would hold the edition against the next one."""
    topic = make_topic()
    name = f"loops-{topic[-6:]}"
    (serve.files / "loops.py").write_text(LOOPS.format(name=name, topic=topic, here=serve.directory))
    loops = serve.directory / "loops"
    loops.touch()
    put(topic, numbers(range(3)))
    serve.start()
    eventually((serve.directory / "at-work").exists, within_s=WITHIN_S, what="a batch under way", every_s=0.2)
    worker = worker_of(serve)
    there = " ".join(processes_of(worker).values())
    assert "/bin/java" in there
    assert "workers.daemon pyspark.worker" in there
    assert serve.process is not None
    serve.process.kill()
    serve.process.wait()
    eventually(lambda: processes_of(worker), to_be={}, what="the end of the worker, of Java and of the loop")
    loops.unlink()
    serve.start()
    serve.has_rows(name, range(3))


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

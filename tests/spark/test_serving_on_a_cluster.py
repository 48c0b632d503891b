"""`cordwood pipeline serve` with a Spark on a standalone master with two workers."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Produce
from tests.spark.serving_stage import NUMBERS, WITHIN_S, Serve, numbers, serving, worker_of, written
from tests.spark.standalone import standalone_cluster


@pytest.fixture
def serve(tmp_path: Path, broker: RunningBroker) -> Iterator[Serve]:
    with serving(tmp_path, broker.bootstrap) as made:
        yield made


def test_pipelines_share_a_spark_of_two_machines(
    serve: Serve, broker: RunningBroker, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic(2)
    one, two = (f"{name}-{topic[-6:]}" for name in ("one", "two"))
    put(topic, numbers(range(100)))
    with standalone_cluster(serve.directory) as cluster:
        both = f'{{"rows": table("{one}"), "out": topic("{one}.out")}}'
        result = '{"rows": numbers, "out": numbers}'
        serve.write(one, f'topic("{topic}", {NUMBERS})', both, result=result, master=cluster.master)
        serve.write(two, f'output("{one}", "{one}.out", {NUMBERS})', f'table("{two}")', master=cluster.master)
        serve.start()
        serve.has_rows(two, range(100))

        # One is stopped and started again, while the other runs on the same executors.
        serve.run("stop", two)
        put(topic, numbers(range(100, 200)))
        serve.has_rows(one, range(200))
        serve.run("start", two, "--timeout", f"{WITHIN_S}")
        serve.has_rows(two, range(200))

        # The driver dies: its executors end, and the next ones go on.
        os.kill(worker_of(serve), signal.SIGKILL)
        put(topic, numbers(range(200, 300)))
        serve.has_rows(two, range(300))
        assert serve.process is not None
        serve.process.send_signal(signal.SIGTERM)
        assert serve.wait() == 0, serve.output.read_text()[-4000:]
        assert (serve.rows(one), written(f"{one}.out", broker.bootstrap)) == (list(range(300)), list(range(300)))

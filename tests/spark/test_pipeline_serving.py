"""`cordwood pipeline serve`: several pipelines in one real Spark, with one that fails, kills and commands."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.spark.conftest import Produce, Record
from tests.spark.serving_stage import NUMBERS, WITHIN_S, Serve, is_gone, numbers, serving, worker_of, written


@pytest.fixture
def serve(tmp_path: Path, broker: RunningBroker) -> Iterator[Serve]:
    with serving(tmp_path, broker.bootstrap) as made:
        yield made


def test_one_spark_runs_all_and_survives_its_own_death(
    serve: Serve, broker: RunningBroker, make_topic: MakeTopic, put: Produce
) -> None:
    topic, poisoned = make_topic(), make_topic()
    one, two, bad = (f"{name}-{topic[-6:]}" for name in ("one", "two", "bad"))
    serve.write(
        one,
        f'topic("{topic}", {NUMBERS})',
        f'{{"rows": table("{one}"), "out": topic("{one}.out")}}',
        result='{"rows": numbers, "out": numbers}',
    )
    serve.write(two, f'output("{one}", "{one}.out", {NUMBERS})', f'table("{two}")')
    serve.write(bad, f'topic("{poisoned}", {NUMBERS})', f'table("{bad}")')
    (serve.files / "wrong.py").write_text("def f(:\n")
    (serve.files / "helper.py").write_text("X = 1\n")
    put(topic, numbers(range(3)))
    put(poisoned, [Record(b"no number")])
    serve.start()

    # One is poisoned, one file is wrong, the others run.
    serve.has_rows(two, range(3))
    eventually(lambda: len(serve.events("failed", bad)), to_be=1, within_s=WITHIN_S, what="the poisoned one's end")
    assert serve.events("failed", bad)[0]["code"] == "OVER_BUDGET"
    (wrong,) = serve.events("wrong")
    assert "wrong.py:1" in wrong["message"]
    said = json.loads(serve.run("list", "--json"))
    assert {each["pipeline"]: each["served"] for each in said} == {
        one: "running in serve",
        two: "running in serve",
        bad: "failed in serve",
    }

    # One is stopped, and the other goes on.
    serve.run("stop", two)
    put(topic, numbers(range(3, 6)))
    serve.has_rows(one, range(6))
    assert serve.rows(two) == [0, 1, 2]

    # The worker dies; what was stopped stays so until it is started.
    worker = worker_of(serve)
    os.kill(worker, signal.SIGKILL)
    put(topic, numbers(range(6, 9)))
    serve.has_rows(one, range(9))
    assert serve.rows(two) == [0, 1, 2]
    serve.run("start", two, "--timeout", f"{WITHIN_S}")
    serve.has_rows(two, range(9))
    assert "running in serve, 1 restart" in serve.run("status", one)

    # The serving process dies, and nothing of it stays; the next one goes on.
    assert serve.process is not None
    worker = worker_of(serve)
    serve.process.kill()
    serve.process.wait()
    eventually(lambda: is_gone(worker), within_s=WITHIN_S, what="the end of the worker")
    put(topic, numbers(range(9, 12)))
    serve.start("--once")
    assert serve.wait() == 1, "one is poisoned and one file is wrong"
    assert (serve.rows(one), serve.rows(two)) == (list(range(12)), list(range(12)))
    assert written(f"{one}.out", broker.bootstrap) == list(range(12))

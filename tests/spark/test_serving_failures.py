"""`cordwood pipeline serve` with pipelines that take more than their share, or have lost an output: the others go on,
each of them is told of, and comes back when it is mended."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.broker_process import free_port
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.spark.conftest import Produce
from tests.spark.serving_stage import NUMBERS, WITHIN_S, Serve, numbers, serving, written

from cordwood.pipelines.editions.project import table_path


@pytest.fixture
def serve(tmp_path: Path, broker: RunningBroker) -> Iterator[Serve]:
    with serving(tmp_path, broker.bootstrap) as made:
        yield made


HOGS = """
import os, time
from cordwood.pipelines import *
from pyspark.sql import functions as F

FACTS = dict(version=1, trigger="100 milliseconds", inputs=topic("{topic}", value=json("n int not null")),
             spark={{"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.memory": "512m"}})

@pipeline("loops-{suffix}", outputs=table("loops-{suffix}"), batch_deadline="{deadline}", **FACTS)
def loops(numbers):
    @F.udf("int")
    def same(n):
        while os.path.exists("{here}/loops"):
            with open("{here}/loops", "w") as file:
                file.write(str(os.getpid()))
        return n
    return numbers.select(same("n").alias("n"))

@pipeline("hangs-{suffix}", outputs=table("hangs-{suffix}"), batch_deadline="{deadline}", **FACTS)
def hangs(numbers):
    while os.path.exists("{here}/hangs"):
        time.sleep(0.1)
    return numbers

@pipeline("fills-{suffix}", outputs=table("fills-{suffix}"), **FACTS)
def fills(numbers):
    @F.udf("int")
    def same(n):
        kept = []
        while os.path.exists("{here}/fills"):
            kept.append(bytearray(16 << 20))
            time.sleep(0.01)
        return n
    return numbers.select(same("n").alias("n"))
"""
HOG_NAMES = ("loops", "hangs", "fills")


def failure_of(serve: Serve, name: str, words: str) -> bool:
    return any(words in each["message"] for each in serve.events("failed", name))


def test_one_that_takes_too_much_is_cut_short_and_the_others_go_on(
    serve: Serve, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    suffix = topic[-6:]
    fine, loops, hangs, fills = (f"{name}-{suffix}" for name in ("fine", *HOG_NAMES))
    markers = [serve.directory / name for name in HOG_NAMES]
    for marker in markers:
        marker.touch()
    serve.write(fine, f'topic("{topic}", {NUMBERS})', f'table("{fine}")')
    facts = {"topic": topic, "suffix": suffix, "here": serve.directory}
    (serve.files / "hogs.py").write_text(HOGS.format(deadline="30s", **facts))
    put(topic, numbers(range(3)))
    serve.start("--python-memory", "2GiB")

    def fails(name: str, words: str) -> None:
        eventually(lambda: failure_of(serve, name, words), within_s=WITHIN_S, what=f"{name}: {words}")

    # A function that grows without end: the supervisor kills the Python worker, and nothing else.
    fails(fills, "a Python worker was killed: it had taken")
    # A loop in a task: Spark kills the Python worker.
    within = "batch 0 has not ended within 30 s"
    fails(loops, f"{within}: its jobs were cancelled")
    # A loop in the function itself: the worker is started again, and only that pipeline is charged.
    fails(hangs, f"{within}, nor after its jobs were cancelled")
    put(topic, numbers(range(3, 6)))
    serve.has_rows(fine, range(6))
    assert not serve.events("failed", fine)
    assert {each["code"] for each in serve.events("failed", fills)} == {"OVER_MEMORY"}
    told = serve.run("status", fills)
    assert "a Python worker was killed" in told
    assert f"`cordwood pipeline reload {fills}`" in told

    # Their changed file is taken when somebody asks for it.
    for marker in markers:
        marker.unlink()
    (serve.files / "hogs.py").write_text(HOGS.format(deadline="1h", **facts))
    for name in (loops, hangs, fills):
        serve.run("reload", name, "--timeout", f"{WITHIN_S}")
        serve.has_rows(name, range(6))


def test_one_whose_output_is_gone_is_not_begun_anew_in_silence(
    serve: Serve, broker: RunningBroker, admin: AdminClient, make_topic: MakeTopic, put: Produce
) -> None:
    topic = make_topic()
    fine, out, rows = (f"{name}-{topic[-6:]}" for name in ("fine", "out", "rows"))
    serve.write(fine, f'topic("{topic}", {NUMBERS})', f'table("{fine}")')
    serve.write(out, f'topic("{topic}", {NUMBERS})', f'topic("{out}.out")')
    serve.write(rows, f'topic("{topic}", {NUMBERS})', f'table("{rows}")')
    put(topic, numbers(range(3)))
    metrics = free_port()
    serve.start("--metrics", f"127.0.0.1:{metrics}")
    for name in (fine, rows):
        serve.has_rows(name, range(3))
    eventually(lambda: written(f"{out}.out", broker.bootstrap), to_be=[0, 1, 2], within_s=WITHIN_S, every_s=0.5)

    admin.delete_topics([f"{out}.out"])[f"{out}.out"].result(60)
    table, aside = Path(table_path(rows, serve.state)), serve.directory / "aside"
    table.rename(aside)
    put(topic, numbers(range(3, 6)))
    for name, words in ((out, f"the topic {out}.out of edition v1 was deleted"), (rows, f"is gone from {table}")):

        def is_told(name: str = name, words: str = words) -> bool:
            return failure_of(serve, name, words)

        eventually(is_told, within_s=WITHIN_S, what=f"{name}: {words}")
        status = serve.run("status", name)
        assert words in status
        assert "hint: " in status
    serve.has_rows(fine, range(6))
    assert not table.exists()
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics") as answer:
        scraped = answer.read().decode()
    failed = dict(re.findall(r'^cordwood_pipeline_failed{.*pipeline="([^"]+)".*} (\d)', scraped, re.MULTILINE))
    assert failed == {fine: "0", out: "1", rows: "1"}

    # Both go on where they were, once somebody has brought their outputs back.
    aside.rename(table)
    serve.make_topic(f"{out}.out")
    for name in (out, rows):
        serve.run("reload", name, "--timeout", f"{WITHIN_S}")
    serve.has_rows(rows, range(6))
    eventually(lambda: written(f"{out}.out", broker.bootstrap), to_be=[3, 4, 5], within_s=WITHIN_S, every_s=0.5)
    assert not serve.events("failed", fine)

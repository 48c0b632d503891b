"""The demo's chapters on Spark: a pipeline that is killed, corrected, replayed and swapped; and the audit.

Each command runs as a user would run it, in a separate process. `compare` and `audit` share a process and its Spark
session, and the audit runs beside other chapters: so the demo starts Spark four times, not five.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cordwood.cli.demo.chapters import Chapter
from cordwood.cli.demo.orders import STEPS, TOPIC, order_of, orders
from cordwood.cli.demo.reader import consumer_of
from cordwood.cli.demo.scene import Scene, TookTooLong, wait
from cordwood.cli.demo.spark_commands import Ended, SparkCommands

PIPELINE = "fulfilment"
ENRICHED = "orders-enriched"
TABLE = "order-status"
MORE_ORDERS = 900
_SPARK_PATIENCE_S = 300.0
_SHOWN_LINES = 6

_DEFINITION = """\
from cordwood.pipelines import json, pipeline, table, text, topic

@pipeline(
    version={version},
    inputs=topic("orders", key=text(), value=json("number long, step long, order long, is string")),
    outputs={{
        "events": topic("orders-enriched", key="customer"),
        "status": table("order-status", key=["customer", "order"]),
    }},
    max_rows_per_batch=5000,
)
def fulfilment(orders):
    events = orders.withColumnRenamed("key", "customer").selectExpr("*", "is = '{done}' as done")
    return {{"events": events, "status": events}}
"""


def _pipeline(scene: Scene) -> None:
    stage, shop = scene.stage, scene.shop
    assert shop is not None
    stage.chapter("A pipeline on Spark: the orders become a topic and a table, with a kill -9 in the middle")
    file = _write(scene, version=1, done="shipped")
    stage.say(file.read_text())
    stage.command(f"cordwood pipeline run {file.name}")
    run = _Run(scene, file)
    try:
        _import_table_reader()
        wait(lambda: len(run.batches) >= 1, "the pipeline has done a batch", _SPARK_PATIENCE_S)
        stage.lines(run.lines[:_SHOWN_LINES])
        worker = run.worker()
        stage.command(f"kill -9 -{worker}")
        os.killpg(worker, signal.SIGKILL)
        first = len(shop.acknowledged)
        for order in orders(first, MORE_ORDERS):
            shop.send(order)
        shop.finish()
        total = len(shop.acknowledged)
        _begin_audit(scene)
        stage.say(f"Spark is dead, and {MORE_ORDERS} more orders came in meanwhile. The pipeline starts Spark again:")
        shown = len(run.lines)
        wait(lambda: run.caught_up(total), "the pipeline has caught up", _SPARK_PATIENCE_S)
        stage.lines(run.lines[shown : shown + _SHOWN_LINES])
    finally:
        run.stop()
    events = _committed_values(scene, ENRICHED)
    numbers = Counter(order_of(value)["number"] for value in events)
    stage.say(f"Counted: {total:,} orders in, {len(events):,} enriched ones out, {len(numbers):,} different.")
    stage.check("no order is lost on the way", set(numbers) == set(range(total)))
    stage.check("no order is there twice: each micro-batch is visible once", max(numbers.values()) == 1)
    table = _table(scene)
    stage.check("the table has each order of each customer once", len(table) == len(_last_steps(scene)))


def _correct(scene: Scene) -> None:
    stage = scene.stage
    stage.chapter("A bug, corrected by replaying history into a fresh table")
    wrong = sum(done != (step == "delivered") for step, done in _table(scene).values())
    stage.say(
        f"Version 1 takes an order for done when it is shipped: {wrong:,} rows are wrong. Version 2 waits for delivery."
    )
    file = _write(scene, version=2, done="delivered")
    stage.command(f"cordwood pipeline replay {file.name} --from earliest")
    _cordwood(scene, "pipeline", "replay", str(file), "--from", "earliest")
    before = sum(done != (step == "delivered") for step, done in _table(scene).values())
    stage.check("meanwhile readers still see the whole old table", before == wrong)
    stage.command(f"cordwood pipeline compare {PIPELINE}")
    compare = ("pipeline", "compare", PIPELINE, "--json")
    assert scene.commands is not None
    compared = json.loads(_output(compare, scene.commands.begin(*compare)))
    (difference,) = compared["tables"]
    columns = ("live_rows", "fresh_rows", "only_live", "only_fresh", "changed")
    stage.table([name.replace("_", " ") for name in columns], [[difference[name] for name in columns]])
    stage.check("the fresh table differs in exactly the wrong rows", difference["changed"] == wrong)
    stage.command(f"cordwood pipeline swap {PIPELINE}")
    _cordwood(scene, "pipeline", "swap", PIPELINE)
    after = _table(scene)
    stage.check("the fresh table is live, and no row is wrong", after == _last_steps(scene))


def _audit(scene: Scene) -> None:
    stage = scene.stage
    stage.chapter("The audit's verdict on the topic's whole history")
    stage.command(f"cordwood audit {TOPIC}")
    _begin_audit(scene)
    assert scene.audit is not None
    report = json.loads(_output(("audit", TOPIC), scene.audit))
    rows = [
        (each["check"], each["scope"], "clean" if each["clean"] else f"{each['found']:,}")
        for each in report["findings"]
    ]
    stage.table(["check", "scope of order", "found"], rows)
    shop = scene.shop
    assert shop is not None
    stage.check(
        f"all {report['records']:,} records: no key in two partitions, no duplicate, no gap",
        report["ok"] and report["records"] == len(shop.acknowledged),
    )


def start_spark(scene: Scene) -> None:
    """Starts the Spark session of the commands that share one, if one of their chapters is played."""
    if scene.playing & {"correct", "audit"}:
        scene.commands = SparkCommands(_environment(scene), os.path.join(scene.directory, "spark.log"))


def _begin_audit(scene: Scene) -> None:
    """Begins the audit if its chapter is played. No chapter writes orders afterwards."""
    if "audit" in scene.playing and scene.audit is None:
        assert scene.commands is not None
        scene.audit = scene.commands.begin("audit", TOPIC, "--json")


def _output(arguments: Sequence[str], command: "Future[Ended]") -> str:
    """The output of a command that has to succeed."""
    try:
        code, output, errors = command.result(_SPARK_PATIENCE_S)
    except TimeoutError:
        raise TookTooLong(f"`cordwood {' '.join(arguments)}` ended") from None
    if code != 0:
        raise TookTooLong(f"`cordwood {' '.join(arguments)}` did its work: {(output + errors)[-1500:]}")
    return output


def as_far_as_installed(chapters: Sequence[Chapter]) -> list[Chapter]:
    """The chapters that can be played: without Spark, one chapter that says so replaces those that need it."""
    if _WITH_SPARK or not any(chapter.on_spark for chapter in chapters):
        return list(chapters)
    first = next(index for index, chapter in enumerate(chapters) if chapter.on_spark)
    rest = [chapter for chapter in chapters[first:] if not chapter.on_spark]
    return [*chapters[:first], Chapter("no-spark", "Spark is not there.", _no_spark), *rest]


def _no_spark(scene: Scene) -> None:
    scene.stage.chapter("Pipelines on Spark")
    scene.stage.say("Left out: Spark is not asked for or not installed. `pip install '.[spark]'` brings it.")


class _Run:
    """`cordwood pipeline run` in a separate process, and its output."""

    def __init__(self, scene: Scene, file: Path) -> None:
        command = [sys.executable, "-m", "cordwood.cli", "pipeline", "run", str(file), "--json"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=_environment(scene)
        )
        self.events: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        from cordwood.pipelines.editions.events import in_words

        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            self.events.append(event)
            self.lines.append(in_words(event))

    @property
    def batches(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == "batch"]

    def caught_up(self, total: int) -> bool:
        if self._process.poll() is not None:
            raise TookTooLong(f"the pipeline went on; it ended with {self._process.returncode}: {self.lines[-3:]}")
        done = {event["batch"]: event["rows_in"] for event in self.batches}
        read: int = sum(done.values())
        return read >= total

    def worker(self) -> int:
        """The process that runs Spark, a child of the supervisor."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return int(children[0])

    def stop(self) -> None:
        """Stops the pipeline after the batch under way."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_SPARK_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._listener.join(5)


def _write(scene: Scene, *, version: int, done: str) -> Path:
    file = Path(scene.directory) / f"{PIPELINE}.py"
    file.write_text(_DEFINITION.format(version=version, done=done))
    return file


def _environment(scene: Scene) -> dict[str, str]:
    own = {name: text for name, text in os.environ.items() if not name.startswith("CORDWOOD_")}
    scratch = os.path.join(scene.directory, "scratch")
    os.makedirs(scratch, exist_ok=True)
    return {
        **own,
        "CORDWOOD_BOOTSTRAP": scene.broker.bootstrap_servers,
        "CORDWOOD_PIPELINES": os.path.join(scene.directory, "pipelines"),
        # No JVM of the demo runs long enough to gain from its second compiler.
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # The files that a killed Spark leaves behind are removed with the demo's own directory.
        "SPARK_LOCAL_DIRS": scratch,
        "TMPDIR": scratch,
    }


def _cordwood(scene: Scene, *arguments: str) -> str:
    """The output of a command that has to succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "cordwood.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=_SPARK_PATIENCE_S,
        env=_environment(scene),
        check=False,
    )
    if done.returncode != 0:
        raise TookTooLong(f"`cordwood {' '.join(arguments)}` did its work: {(done.stdout + done.stderr)[-1500:]}")
    return done.stdout


def _committed_values(scene: Scene, topic: str) -> list[bytes]:
    """The values of a topic that a read_committed reader sees."""
    from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

    consumer = consumer_of(scene.broker.bootstrap_servers, "counting")
    partitions = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    values: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        for message in consumer.consume(500, timeout=1):
            error = message.error()
            if error is None:
                value = message.value()
                assert isinstance(value, bytes)
                values.append(value)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
    consumer.close()
    return values


def _import_table_reader() -> None:
    """Imports the libraries of `_table` while Spark starts, since the imports take seconds."""
    import deltalake  # noqa: F401

    import cordwood.pipelines  # noqa: F401


def _table(scene: Scene) -> dict[tuple[str, int], tuple[str, bool]]:
    """(customer, order) → (last step, True if it is done), as a reader of the live table sees it."""
    from deltalake import DeltaTable

    from cordwood.pipelines import table_path

    path = table_path(TABLE, os.path.join(scene.directory, "pipelines"))
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return {(row["customer"], row["order"]): (row["is"], row["done"]) for row in rows}


def _last_steps(scene: Scene) -> dict[tuple[str, int], tuple[str, bool]]:
    """(customer, order) → (last step, True if it is done), from the acknowledged events."""
    assert scene.shop is not None
    found: dict[tuple[str, int], int] = {}
    for acked in scene.shop.acknowledged:
        order = acked.order
        place = (order.customer, order.step // len(STEPS))
        found[place] = max(found.get(place, -1), order.step % len(STEPS))
    return {place: (STEPS[step], STEPS[step] == "delivered") for place, step in found.items()}


_WITH_SPARK = find_spec("pyspark") is not None and os.environ.get("CORDWOOD_DEMO_SPARK") != "no"
CHAPTERS = (
    Chapter("pipeline", "A pipeline on Spark is killed and loses nothing.", _pipeline, ("write",), on_spark=True),
    Chapter("correct", "A bug is corrected by a replay of history.", _correct, ("pipeline",), on_spark=True),
    Chapter("audit", "The topic's whole history is audited on Spark.", _audit, ("write",), on_spark=True),
)

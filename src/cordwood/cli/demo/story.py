"""The demo's story: its chapters on the broker, one function each, and the playing of all chapters."""

import hashlib
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Collection
from itertools import pairwise

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.administration.topic.promises import ack_promise, order_promise
from cordwood.cli.demo import cluster_story, pipeline_story
from cordwood.cli.demo.broker_process import BrokerFailed, BrokerProcess
from cordwood.cli.demo.chapters import Chapter, chosen
from cordwood.cli.demo.orders import PARTITIONS, TOPIC, Shop, order_of, orders
from cordwood.cli.demo.reader import COMMIT_EVERY, Line, consumer_of, lines_of
from cordwood.cli.demo.scene import PATIENCE_S, Scene, TookTooLong, wait
from cordwood.cli.demo.stage import Stage
from cordwood.cli.demo.whole_topic import read_all, rises
from cordwood.log.inspection.directory import read_data_directory
from cordwood.log.inspection.verify import verify
from cordwood.model.failure import Failure

FIRST_ORDERS = 600
SEARCH_READS = 200
KILL_READER_AFTER = 250
ORDERS_UNDER_FIRE = 6000
KILL_BROKER_AFTER = 2000


def run(names: Collection[str] = ()) -> int:
    """Plays the named chapters and the chapters that they need, or all. Returns 0 if every claim held."""
    chapters = pipeline_story.as_far_as_installed(chosen(CHAPTERS, names))
    stage = Stage()
    stage.title(
        "Cordwood: a commit log that speaks the Kafka protocol",
        "A real broker, a real Kafka client, real kills. Everything happens in a temporary directory.",
    )
    with tempfile.TemporaryDirectory(prefix="cordwood-demo-") as directory:
        data_directory = os.path.join(directory, "data")
        broker = BrokerProcess(data_directory, os.path.join(directory, "broker.log"))
        scene = Scene(stage, broker, directory, playing=frozenset(chapter.name for chapter in chapters))
        try:
            for chapter in chapters:
                chapter.play(scene)
        except (BrokerFailed, Failure, KafkaException, subprocess.TimeoutExpired, TookTooLong) as error:
            stage.check(f"the demo ran to its end: {error}", False)
        finally:
            scene.close()
    return stage.finish()


def _start(scene: Scene) -> None:
    stage = scene.stage
    stage.chapter("Start a broker")
    stage.command("cordwood serve")
    took_ms = scene.broker.start()
    stage.say(
        f"Clients can connect after {took_ms:.0f} ms (process {scene.broker.pid}, {scene.broker.bootstrap_servers})."
    )
    stage.command(f"cordwood topic create {TOPIC} --partitions {PARTITIONS} --order key")
    admin = AdminClient({"bootstrap.servers": scene.broker.bootstrap_servers, "log_level": 0})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1, config={"ordering.scope": "key"})
    admin.create_topics([topic], operation_timeout=10)[TOPIC].result(10)
    stage.say(f"Order by {order_promise('key', PARTITIONS).name}: {order_promise('key', PARTITIONS).meaning}.")
    stage.say(f"An ack means {ack_promise('disk').name}. {ack_promise('disk').meaning}.")


def _produce(scene: Scene) -> None:
    stage = scene.stage
    stage.chapter(f"Write {FIRST_ORDERS} events of orders, keyed by customer, with confluent-kafka")
    scene.shop = shop = Shop(scene.broker.bootstrap_servers)
    began = time.monotonic()
    for order in orders(0, FIRST_ORDERS):
        shop.send(order)
    shop.finish()
    took_ms = (time.monotonic() - began) * 1000
    rows = []
    for partition in range(PARTITIONS):
        there = [acked for acked in shop.acknowledged if acked.partition == partition]
        customers = ", ".join(sorted({acked.order.customer for acked in there}))
        rows.append((partition, len(there), f"0 to {len(there) - 1}" if there else "-", customers))
    stage.table(["partition", "records", "offsets", "customers whose orders are here"], rows)
    stage.check(
        f"all {FIRST_ORDERS} are acknowledged, so they are fsynced ({took_ms:.0f} ms)",
        len(shop.acknowledged) == FIRST_ORDERS and not shop.errors,
    )
    homes = {(acked.order.customer, acked.partition) for acked in shop.acknowledged}
    stage.check("every customer's orders are in one partition", len(homes) == len({customer for customer, _ in homes}))
    # The next chapters mostly wait: Spark starts beside them.
    pipeline_story.start_spark(scene)


def _order(scene: Scene) -> None:
    stage = scene.stage
    stage.chapter("Order within a partition and a key, and none between partitions")
    lines = read_all(scene.broker.bootstrap_servers, "curious")
    numbers = [order_of(line.value.encode())["number"] for line in lines]
    backwards = sum(later < earlier for earlier, later in pairwise(numbers))
    first = ", ".join(f"{number}" for number in numbers[:8])
    stage.say(f"One reader of all {PARTITIONS} partitions saw the events in this order: {first}, ...")
    stage.say(
        f"The numbers jump back {backwards} times. That is no fault: between partitions there is no order, and another "
        "reader may see the partitions interleaved differently."
    )
    stage.check("within each partition, offsets only rise", rises(lines, by_key=False))
    stage.check("within each key, a customer's steps are in the order of writing", rises(lines, by_key=True))


def _two_readers(scene: Scene) -> None:
    stage = scene.stage
    stage.chapter("Two readers, each at its own position")
    stage.say(f"`search` reads {SEARCH_READS} records and pauses. `billing` reads everything, slowly, from the start.")
    search = scene.start_reader("search", limit=SEARCH_READS)
    billing = scene.start_reader("billing", pause_ms=4)
    wait(lambda: len(lines_of(scene.file_of("billing"))) >= KILL_READER_AFTER // 2, "the reader billing is at work")
    search.wait(PATIENCE_S)
    rows = []
    for name in ("search", "billing"):
        positions = _committed(scene, name)
        rows.append(
            (name, len(lines_of(scene.file_of(name))), "  ".join(f"{index}:{at}" for index, at in positions.items()))
        )
    stage.table(["reader", "records read", "committed position (partition:offset)"], rows)
    stage.check(f"search has read {SEARCH_READS} records", len(lines_of(scene.file_of("search"))) == SEARCH_READS)
    stage.check("reading removes nothing: billing is still at work on the same records", billing.poll() is None)


def _kill_reader(scene: Scene) -> None:
    stage = scene.stage
    stage.chapter("kill -9 of a reader, which then goes on from its committed position")
    billing = scene.readers[-1]
    path = scene.file_of("billing")
    # The kill comes between two commits, so that some records are worked on twice.
    wait(lambda: _uncommitted_work(len(lines_of(path))), "the reader billing gets on")
    billing.send_signal(signal.SIGKILL)
    billing.wait()
    before = lines_of(path)
    committed = sum(_committed(scene, "billing").values())
    stage.command(f"kill -9 {billing.pid}")
    stage.say(f"The reader had worked on {len(before)} records and committed {committed}. It starts again.")
    scene.start_reader("billing").wait(PATIENCE_S)
    lines = lines_of(path)
    times = Counter((line.partition, line.offset) for line in lines)
    again = sum(count - 1 for count in times.values())
    stage.say(
        f"The reader went on from record {committed}: {again} records were worked on twice, because it commits after "
        f"every {COMMIT_EVERY}. That is at least once. For exactly once, write position and result together."
    )
    stage.check(f"billing has seen all {FIRST_ORDERS} records", len(times) == FIRST_ORDERS)
    stage.check(f"billing has seen at most {COMMIT_EVERY} records twice", again <= COMMIT_EVERY)


def _uncommitted_work(worked: int) -> bool:
    return worked >= KILL_READER_AFTER and COMMIT_EVERY // 3 <= worked % COMMIT_EVERY <= COMMIT_EVERY - 8


def _kill_broker(scene: Scene) -> None:
    stage, shop = scene.stage, scene.shop
    assert shop is not None
    stage.chapter(f"kill -9 of the broker, while {ORDERS_UNDER_FIRE:,} more events are being written")
    target = FIRST_ORDERS + KILL_BROKER_AFTER
    killed_at = None
    took_ms = 0.0
    for order in orders(FIRST_ORDERS, ORDERS_UNDER_FIRE):
        shop.send(order)
        if killed_at is None and len(shop.acknowledged) >= target:
            killed_at = len(shop.acknowledged)
            stage.command(f"kill -9 {scene.broker.pid}")
            scene.broker.kill()
            stage.command("cordwood serve")
            took_ms = scene.broker.start()
    shop.finish(PATIENCE_S)
    stage.say(
        f"The broker was killed after {killed_at or 0:,} acknowledgements and served again {took_ms:.0f} ms later, on "
        "the same files. The producer was not restarted: it sent the unacknowledged events again."
    )
    total = FIRST_ORDERS + ORDERS_UNDER_FIRE
    stage.check("the broker was killed in the middle", killed_at is not None and killed_at < total)
    stage.check(f"all {total:,} events are acknowledged", len(shop.acknowledged) == total and not shop.errors)
    lines = read_all(scene.broker.bootstrap_servers, "auditor")
    found = Counter(order_of(line.value.encode())["number"] for line in lines)
    stage.check("no acknowledged event is lost", set(found) == set(range(total)))
    stage.check("no event is there twice: the producer is idempotent", max(found.values()) == 1)
    where = {acked.order.number: (acked.partition, acked.offset) for acked in shop.acknowledged}
    as_acknowledged = all(
        where[order_of(line.value.encode())["number"]] == (line.partition, line.offset) for line in lines
    )
    stage.check("each event is at its acknowledged offset", as_acknowledged)
    stage.check("within each key the steps are still in order", rises(lines, by_key=True))
    scene.start_reader("billing").wait(PATIENCE_S)
    seen = {(line.partition, line.offset) for line in lines_of(scene.file_of("billing"))}
    stage.check(f"billing has read on, and has seen all {total:,} events", len(seen) == total)


def _replay(scene: Scene) -> None:
    stage = scene.stage
    stage.chapter("Replay from offset 0")
    first, second = (
        read_all(scene.broker.bootstrap_servers, "replay-1"),
        read_all(scene.broker.bootstrap_servers, "replay-2"),
    )
    rows = []
    for partition in range(PARTITIONS):
        digests = [_digest(lines, partition) for lines in (first, second)]
        rows.append((partition, sum(line.partition == partition for line in first), digests[0][:16], digests[1][:16]))
    stage.table(["partition", "records", "sha-256 of the first replay", "of the second"], rows)
    stage.check(
        "in each partition both replays saw the same bytes in the same order", all(row[2] == row[3] for row in rows)
    )
    stage.say("The replays may have interleaved the partitions differently: the scope of order is the partition.")


def _files(scene: Scene) -> None:
    stage = scene.stage
    stage.chapter("Stop, and look at the files")
    stage.command(f"kill -TERM {scene.broker.pid}; cordwood inspect {scene.broker.data_directory} --verify")
    scene.broker.stop()
    view = read_data_directory(scene.broker.data_directory)
    results = [verify(read) for read in view.partitions if read.partition.topic == TOPIC]
    records = sum(result.records for result in results)
    problems = [problem for result in results for problem in result.problems]
    stage.say(f"{records:,} records in {sum(result.batches for result in results):,} batches, in Kafka's file format.")
    stage.check(
        "every batch, record, index and snapshot is sound",
        not problems and scene.shop is not None and records == len(scene.shop.acknowledged),
    )
    for problem in problems:
        stage.say(f"{problem.kind}: {problem.file}: {problem.what}")


def _committed(scene: Scene, group: str) -> dict[int, int]:
    consumer = consumer_of(scene.broker.bootstrap_servers, group)
    found = consumer.committed([TopicPartition(TOPIC, index) for index in range(PARTITIONS)], timeout=10)
    consumer.close()
    return {at.partition: max(0, at.offset) for at in found}


def _digest(lines: list[Line], partition: int) -> str:
    digest = hashlib.sha256()
    for line in lines:
        if line.partition == partition:
            digest.update(str(line).encode())
    return digest.hexdigest()


CHAPTERS = (
    Chapter("start", "A broker starts, and a topic with an order by key is created.", _start),
    Chapter("write", "Events of orders are written and acknowledged.", _produce, ("start",)),
    Chapter("order", "Records are in order within a partition and a key, not between partitions.", _order, ("write",)),
    Chapter("readers", "Two readers, each at its own position.", _two_readers, ("write",)),
    Chapter("kill-reader", "A reader is killed and goes on from its committed position.", _kill_reader, ("readers",)),
    Chapter("kill-broker", "The broker is killed while events are being written.", _kill_broker, ("write",)),
    Chapter("replay", "The history is read twice, and both readings have the same bytes.", _replay, ("write",)),
    *pipeline_story.CHAPTERS,
    Chapter("files", "The broker is stopped, and its files are verified.", _files, ("write",)),
    *cluster_story.CHAPTERS,
)
"""The story in its order."""

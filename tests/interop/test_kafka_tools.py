"""Kafka's own command line tools, as an administrator would use them."""

import json
import random
import subprocess
from pathlib import Path

import pytest
from benchmarks.kafka_peer import KafkaJars
from confluent_kafka import Producer
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.interop.confluent_clients import produce_all
from tests.interop.conftest import JVM_FLAGS

from cordwood.embedded import Broker


class Tools:
    """Runs a main class of Kafka's with --bootstrap-server."""

    def __init__(self, jars: KafkaJars, broker: RunningBroker) -> None:
        self.jars = jars
        self.broker = broker

    def run(self, main_class: str, *arguments: str, stdin: str = "") -> str:
        command = self.jars.command(
            main_class, "--bootstrap-server", self.broker.bootstrap, *arguments, jvm_flags=JVM_FLAGS
        )
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def tools(kafka_jars: KafkaJars, broker: RunningBroker) -> Tools:
    return Tools(kafka_jars, broker)


def test_console_producer_and_consumer(tools: Tools, topic: str) -> None:
    lines = "".join(f"k{n}:value {n}\n" for n in range(20))
    tools.run(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--topic", topic, "--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        stdin=lines,
    )
    out = tools.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(
            "--topic",
            topic,
            "--partition",
            "0",
            "--offset",
            "earliest",
            "--max-messages",
            "20",
            "--timeout-ms",
            "30000",
        ),
        *("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"),
    )
    assert out == lines


def test_producer_performance(kafka_jars: KafkaJars, broker: RunningBroker, topic: str) -> None:
    out = kafka_jars.run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", "5000", "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all"),
        jvm_flags=JVM_FLAGS,
    )
    assert "5000 records sent" in out


def test_features(kafka_jars: KafkaJars, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, settings={"metadata.version.max": 1}):
        pass
    with Broker(data_dir=tmp_path) as broker:

        def features(*arguments: str, fails: bool = False) -> str:
            command = kafka_jars.command(
                "org.apache.kafka.tools.FeatureCommand",
                *("--bootstrap-server", broker.bootstrap_servers, *arguments),
                jvm_flags=JVM_FLAGS,
            )
            done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
            assert bool(done.returncode) == fails, done.stdout + done.stderr
            return done.stdout + done.stderr

        name = "cordwood.metadata.version"
        line = next(line for line in features("describe").splitlines() if f"Feature: {name}" in line)
        assert "SupportedMinVersion: 1" in line
        assert "SupportedMaxVersion: 2" in line
        assert "FinalizedVersionLevel: 1" in line
        assert f"{name} can be upgraded to 2" in features("upgrade", "--feature", f"{name}=2", "--dry-run")
        assert f"{name} was upgraded to 2" in features("upgrade", "--feature", f"{name}=2")
        assert "2 is final" in features("downgrade", "--feature", f"{name}=1", fails=True)
        line = next(line for line in features("describe").splitlines() if f"Feature: {name}" in line)
        assert "FinalizedVersionLevel: 2" in line


def test_topics(tools: Tools, topic: str) -> None:
    main = "org.apache.kafka.tools.TopicCommand"
    described = tools.run(main, "--describe", "--topic", topic)
    assert f"Topic: {topic}" in described
    assert "PartitionCount: 1" in described
    assert "ReplicationFactor: 1" in described
    tools.run(main, "--alter", "--topic", topic, "--partitions", "3")
    eventually(lambda: "PartitionCount: 3" in tools.run(main, "--describe", "--topic", topic), what="3 partitions")
    tools.run(main, "--delete", "--topic", topic)
    eventually(lambda: topic not in tools.run(main, "--list").splitlines(), what="the topic's absence")


def test_configs(tools: Tools, topic: str) -> None:
    def config(*arguments: str) -> str:
        return tools.run("kafka.admin.ConfigCommand", "--entity-type", "topics", "--entity-name", topic, *arguments)

    config("--alter", "--add-config", "retention.ms=86400000")
    eventually(lambda: "retention.ms=86400000" in config("--describe"), what="the new value")


def test_offsets_and_deleted_records(tools: Tools, broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    produce_all(
        Producer({"bootstrap.servers": broker.bootstrap}), [{"topic": topic, "value": f"v{n}"} for n in range(10)]
    )
    main = "org.apache.kafka.tools.GetOffsetShell"
    assert tools.run(main, "--topic", topic, "--time", "latest") == f"{topic}:0:10\n"
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}
    file = tmp_path / "records.json"
    file.write_text(json.dumps(wanted))
    out = tools.run("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(file))
    assert f"partition: {topic}-0\tlow_watermark: 4" in out
    assert tools.run(main, "--topic", topic, "--time", "earliest") == f"{topic}:0:4\n"


def test_log_directories(tools: Tools, broker: RunningBroker, topic: str) -> None:
    produce_all(Producer({"bootstrap.servers": broker.bootstrap}), [{"topic": topic, "value": b"x" * 5000}])
    out = tools.run("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", topic)
    (answer,) = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    sizes = {
        partition["partition"]: partition["size"]
        for node in answer["brokers"]
        for directory in node["logDirs"]
        for partition in directory["partitions"]
    }
    assert sizes.keys() == {f"{topic}-0"}
    assert sizes[f"{topic}-0"] > 5000


def test_active_producers(tools: Tools, broker: RunningBroker, topic: str) -> None:
    client = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    produce_all(client, [{"topic": topic, "value": b"v"}])
    out = tools.run(
        "org.apache.kafka.tools.TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0"
    )
    header, row = out.splitlines()
    named = dict(zip(header.split(), row.split(), strict=False))
    assert int(named["ProducerId"]) >= 0
    assert named["LastSequence"] == "0"


def test_api_versions(tools: Tools) -> None:
    out = tools.run("org.apache.kafka.tools.BrokerApiVersionsCommand")
    assert "Produce(0): " in out
    assert "UNKNOWN(10000): 0" in out, "what is ours alone is passed over"
    assert "ERROR" not in out


class TestDumpLogSegments:
    """Kafka's dump tool reads the files that the broker wrote, and finds its own format."""

    @pytest.fixture
    def directory(self, broker: RunningBroker, make_topic: MakeTopic) -> Path:
        if broker.process is None:
            pytest.skip("the files of a broker that is not ours are not at hand")
        topic = make_topic(**{"segment.bytes": "20000", "index.interval.bytes": "500"})
        client = Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "compression.type": "lz4"}
        )
        noise = random.Random(1)  # what compresses well would not fill a segment
        for _ in range(30):
            produce_all(client, [{"topic": topic, "key": f"k{n}", "value": noise.randbytes(400)} for n in range(10)])
        return broker.process.data_dir / f"{topic}-0"

    def test_the_log_and_its_indexes(self, kafka_jars: KafkaJars, directory: Path) -> None:
        def rolled() -> list[Path]:
            found = sorted(directory.glob("*.log"))
            return found if len(found) > 1 and found[0].with_suffix(".index").exists() else []

        logs = eventually(rolled, what="a second segment with indexes")

        def dump(*arguments: str) -> str:
            return kafka_jars.run_tool("org.apache.kafka.tools.DumpLogSegments", *arguments, jvm_flags=JVM_FLAGS)

        files = ",".join(str(log) for log in logs)
        out = dump("--deep-iteration", "--print-data-log", "--files", files)
        assert out.count("isvalid: true") == 30
        assert "isvalid: false" not in out
        assert out.count("| offset: ") == 300
        indexes = [str(path) for path in sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")])]
        out = dump("--index-sanity-check", "--files", ",".join(indexes))
        assert out.count("passed sanity check") == len(indexes)
        for path in indexes[:2]:
            assert "mismatch" not in dump("--verify-index-only", "--files", path).lower()


def test_a_partition_moves_to_another_data_directory(kafka_jars: KafkaJars, tmp_path: Path) -> None:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    with Broker(data_dir=",".join(directories)) as broker:

        def tool(main_class: str, *arguments: str) -> str:
            command = kafka_jars.command(
                main_class, "--bootstrap-server", broker.bootstrap_servers, *arguments, jvm_flags=JVM_FLAGS
            )
            done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        def places() -> dict[str, bool]:
            """The directories with the log (False) or a copy of it (True)."""
            out = tool("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", "orders")
            (told,) = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
            return {
                each["logDir"]: part["isFuture"]
                for each in told["brokers"][0]["logDirs"]
                for part in each["partitions"]
            }

        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        produce_all(producer, [{"topic": "orders", "value": f"v{number}"} for number in range(500)])
        (source,) = places()
        (target,) = [each for each in directories if each != source]
        plan = tmp_path / "plan.json"
        moved = {"topic": "orders", "partition": 0, "replicas": [1], "log_dirs": [target]}
        plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
        reassign = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        out = tool(reassign, "--reassignment-json-file", str(plan), "--execute")
        assert f"Successfully started moving log directory to {target} for replica orders-0 with broker 1" in out, out
        eventually(lambda: places() == {target: False}, what="the end of the move")
        out = tool(reassign, "--reassignment-json-file", str(plan), "--verify")
        assert "Reassignment of replica orders-0-1 completed successfully." in out, out

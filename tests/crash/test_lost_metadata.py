"""Metadata that was lost, damaged or put back from a backup: no start erases records because of it."""

import asyncio
import json
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from tests.broker_process import EXECUTABLE, BrokerProcess
from tests.crash.conftest import StartBroker
from tests.crash.mounts import MountUnavailable, SmallTmpfs
from tests.crash.test_disk_full import take_the_rest
from tests.deadline import eventually
from tests.interop.confluent_clients import produce_all, read_to_end
from tests.moments import at

from cordwood.broker.recovery.repairing import repair
from cordwood.broker.recovery.restoring import restore
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import DELETED_TOPICS, TOPIC_NAMES
from cordwood.cluster.planner.topics import TopicDeletion, TopicReference, plan_delete_topics
from cordwood.cluster.stores.sqlite import SqliteStore
from cordwood.cluster.stores.wal import DamagedStore
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.model.settings.broker_settings import BrokerSettings


def create(broker: BrokerProcess, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)], operation_timeout=20)[topic].result(60)


def delete(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(60)


def send(broker: BrokerProcess, topic: str, values: list[str]) -> None:
    client = Producer({"bootstrap.servers": broker.bootstrap})
    produce_all(client, [{"topic": topic, "partition": 0, "value": value} for value in values])


def read(broker: BrokerProcess, topic: str) -> list[str]:
    return [(message.value() or b"").decode() for message in read_to_end(broker.bootstrap, topic, [0])]


def commit(broker: BrokerProcess, position: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[position], asynchronous=False)
    consumer.close()


def committed(broker: BrokerProcess, partition: TopicPartition) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
    (position,) = consumer.committed([partition], timeout=30)
    consumer.close()
    return int(position.offset)


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def test_a_bit_flipped_in_the_topic_id_costs_nothing(start_broker: StartBroker) -> None:
    broker = start_broker()
    create(broker, "orders")
    send(broker, "orders", ["a", "b"])
    for stop in (broker.stop, broker.kill):
        stop()
        metadata = broker.data_dir / "orders-0" / "partition.metadata"
        whole = metadata.read_bytes()
        flip(metadata, whole.index(b"topic_id: ") + len("topic_id: ") + 3)
        broker.start()
        assert read(broker, "orders") == ["a", "b"]
        broker.says("partition.metadata in it is missing or damaged")
        assert metadata.read_bytes() == whole


def recover(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(EXECUTABLE), "recover", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )


def with_an_older_store(broker: BrokerProcess, backup: Path) -> None:
    """Topic `early` is in the older store, `late` was created since, with 5 records of which 2 are deleted."""
    create(broker, "early")
    send(broker, "early", ["e"])
    broker.stop()
    shutil.copy(broker.data_dir / "metadata.sqlite", backup)
    broker.start()
    create(broker, "late", **{"retention.ms": "1234567890"})
    send(broker, "late", ["a", "b", "c", "d", "e"])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition("late", 0, 2)])[TopicPartition("late", 0)].result(60)
    broker.stop()
    shutil.copy(backup, broker.data_dir / "metadata.sqlite")


def without_witness(broker: BrokerProcess) -> None:
    """Somebody put back the older store, and removed the file that tells its age."""
    (broker.data_dir / "metadata.sqlite-witness").unlink()


def refused(broker: BrokerProcess) -> str:
    """What a broker says that does not start."""
    broker.launch()
    eventually(lambda: not broker.alive, what="the end of the broker")
    assert broker.exit_code == 1
    said = broker.output()
    broker.kill()
    return said


def test_a_store_that_went_back_is_refused_and_recovered_from_its_witness(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    with_an_older_store(broker, tmp_path / "backup")
    before = sorted(path.name for path in broker.data_dir.iterdir())
    said = refused(broker)
    assert "metadata.sqlite went back" in said
    assert "cordwood recover metadata" in said
    assert (tmp_path / "backup").read_bytes() == (broker.data_dir / "metadata.sqlite").read_bytes()
    assert sorted(path.name for path in broker.data_dir.iterdir()) == before
    repaired = json.loads(recover("metadata", broker.data_dir, "--json").stdout)
    assert repaired["topics"] == ["late"]
    assert recover("metadata", broker.data_dir).stdout.startswith("The metadata is whole")
    broker.start()
    assert (read(broker, "early"), read(broker, "late")) == (["e"], ["c", "d", "e"])
    assert not list(broker.data_dir.glob("*-stray"))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "late")
    assert admin.describe_configs([resource])[resource].result(60)["retention.ms"].value == "1234567890"
    send(broker, "late", ["f"])
    assert read(broker, "late") == ["c", "d", "e", "f"]


@pytest.mark.parametrize("place", [0.02, 0.9])
def test_a_bit_flipped_in_the_log_of_the_store_of_a_killed_broker_costs_no_topic(
    start_broker: StartBroker, place: float
) -> None:
    broker = start_broker()
    topics = [f"t{number}" for number in range(4)]
    for topic in topics:
        create(broker, topic)
        send(broker, topic, [topic])
    witness = broker.data_dir / "metadata.sqlite-witness"
    eventually(lambda: witness.exists() and b"topic_names/t3" in witness.read_bytes(), what="the witness")
    broker.kill()
    wal = broker.data_dir / "metadata.sqlite-wal"
    used = len(wal.read_bytes().rstrip(b"\0"))
    flip(wal, int(used * place), 3)
    before = wal.read_bytes()
    broker.launch()
    eventually(lambda: broker.is_ready() or not broker.alive, what="a start or a refusal")
    if not broker.is_ready():
        broker.says("cordwood recover metadata")
        broker.kill()
        assert wal.read_bytes() == before, "a refusal changes nothing"
        assert recover("metadata", broker.data_dir).returncode == 0
        broker.launch()
    broker.wait_ready()
    assert [read(broker, topic) for topic in topics] == [[topic] for topic in topics]


def test_topics_that_an_older_store_does_not_know_are_kept_and_put_back(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    with_an_older_store(broker, tmp_path / "backup")
    without_witness(broker)
    broker.start()
    assert read(broker, "early") == ["e"]
    (kept,) = broker.data_dir.glob("late-0*")
    assert kept.name == "late-0.0-stray"
    broker.says(f"{kept} is set aside")
    in_use = recover("put-back", broker.data_dir, "late")
    assert in_use.returncode == 1
    assert "in use" in in_use.stderr
    broker.kill()
    broker.start()
    broker.says(f"{kept} is set aside")
    broker.stop()

    (listed,) = json.loads(recover("list", broker.data_dir, "--json").stdout)
    assert (listed["topic"], listed["start_offset"], listed["end_offset"]) == ("late", 2, 5)
    assert "late-0.0-stray" in recover("list", broker.data_dir).stdout
    assert recover("list", broker.data_dir, "-q").stdout == "late-0.0-stray\n"
    assert recover("put-back", broker.data_dir, "lost").returncode == 4
    (restored,) = json.loads(recover("put-back", broker.data_dir, "late", "--json").stdout)
    assert (restored["topic"], restored["partition_count"]) == ("late", 1)
    assert restored["settings"]["retention.ms"] == "-1"
    assert restored["retention_before"] == {"retention.ms": "1234567890"}
    broker.start()
    assert read(broker, "late") == ["c", "d", "e"], "what was deleted stays deleted"
    send(broker, "late", ["f"])
    assert [message.offset() for message in read_to_end(broker.bootstrap, "late", [0])] == [2, 3, 4, 5]
    assert not list(broker.data_dir.glob("*-stray"))
    broker.stop()
    assert recover("list", broker.data_dir).stderr.strip() == "Nothing is set aside."


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_store_that_is_gone_is_refused_and_begun_anew_by_recover(start_broker: StartBroker, left: str) -> None:
    broker = start_broker()
    create(broker, "orders")
    send(broker, "orders", ["a", "b"])
    commit(broker, TopicPartition("orders", 0, 1))
    broker.stop()
    for file in broker.data_dir.glob("metadata.sqlite*"):
        file.unlink()
    if left == "an empty file":
        (broker.data_dir / "metadata.sqlite").touch()
    before = sorted(path.name for path in broker.data_dir.iterdir())
    for _ in range(2):
        said = refused(broker)
        assert f"metadata store {broker.data_dir}/metadata.sqlite is gone" in said
        assert f"cordwood recover metadata {broker.data_dir}" in said
        assert sorted(path.name for path in broker.data_dir.iterdir()) == before, "a refusal changes nothing"
    recovered = recover("metadata", broker.data_dir)
    assert recovered.returncode == 0
    assert "is gone" in recovered.stdout
    broker.start()
    broker.says("orders-0.0-stray is set aside")
    broker.stop()
    put_back = recover("put-back", broker.data_dir, "--all")
    assert put_back.returncode == 0
    assert "orders: partitions 0 put back; the topic has 1 in all\n" in put_back.stdout
    assert "Nothing is set aside." in recover("put-back", broker.data_dir, "--all").stderr
    broker.start()
    assert read(broker, "orders") == ["a", "b"]
    assert committed(broker, TopicPartition("orders", 0)) == 1, "the group is found in the partition that it was in"


def without_a_store(broker: BrokerProcess) -> None:
    """The store and its witness are gone; all that is left of topics is in their directories, which are set aside."""
    broker.stop()
    for file in broker.data_dir.glob("metadata.sqlite*"):
        file.unlink()
    assert recover("metadata", broker.data_dir).returncode == 0
    broker.start()
    broker.stop()


def settings_of(broker: BrokerProcess, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entries = admin.describe_configs([resource])[resource].result(60)
    return {name: entry.value for name, entry in entries.items()}


def partition_count(broker: BrokerProcess, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return len(admin.list_topics(topic, timeout=30).topics[topic].partitions)


@pytest.mark.parametrize("end", ["stopped", "killed, with the change in the files of the next start"])
def test_a_topic_is_rebuilt_with_its_empty_partitions_and_its_settings(start_broker: StartBroker, end: str) -> None:
    """Only partition 0 has a record, and so a directory."""
    broker = start_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"retention.ms": "1234567890", "max.message.bytes": "54321"}
    admin.create_topics([NewTopic("orders", 3, 1, config=config)], operation_timeout=20)["orders"].result(60)
    send(broker, "orders", ["a"])
    metadata = (broker.data_dir / "orders-0" / "partition.metadata").read_text()
    assert "partitions: 3" in metadata, "with the first record"
    admin.create_partitions([NewPartitions("orders", 7)])["orders"].result(60)
    change = ConfigEntry("max.message.bytes", "65432", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(60)
    if end != "stopped":
        broker.kill()
        broker.start()
    without_a_store(broker)
    (restored,) = json.loads(recover("put-back", broker.data_dir, "--all", "--json").stdout)
    assert (restored["partition_count"], restored["partition_count_known"]) == (7, True)
    assert restored["retention_before"] == {"retention.ms": "1234567890"}
    broker.start()
    assert partition_count(broker, "orders") == 7
    settings = settings_of(broker, "orders")
    assert (settings["max.message.bytes"], settings["retention.ms"]) == ("65432", "-1")
    assert read(broker, "orders") == ["a"]


def test_the_operator_says_how_many_partitions_a_topic_of_an_earlier_version_had(start_broker: StartBroker) -> None:
    broker = start_broker()
    create(broker, "orders")
    send(broker, "orders", ["a"])
    without_a_store(broker)
    (metadata,) = broker.data_dir.glob("orders-0*/partition.metadata")
    version, topic_id = metadata.read_text().splitlines()[:2]
    metadata.write_text(f"{version}\n{topic_id}\n")
    (restored,) = json.loads(recover("put-back", broker.data_dir, "orders", "--partitions", "4", "--json").stdout)
    assert restored["partition_count"] == 4
    broker.start()
    assert partition_count(broker, "orders") == 4
    assert read(broker, "orders") == ["a"]


@pytest.mark.parametrize("lost", ["the store", "the store and its witness"])
def test_positions_are_found_though_their_topic_has_an_unusual_number_of_partitions(
    start_broker: StartBroker, lost: str
) -> None:
    broker = start_broker(settings={"offsets.topic.num.partitions": "7"})
    create(broker, "orders")
    send(broker, "orders", ["a", "b"])
    commit(broker, TopicPartition("orders", 0, 1))
    if lost == "the store":
        broker.stop()
        (broker.data_dir / "metadata.sqlite").unlink()
        assert recover("metadata", broker.data_dir).returncode == 0
    else:
        without_a_store(broker)
        assert recover("put-back", broker.data_dir, "--all").returncode == 0
    broker.settings = {}
    broker.start()
    assert partition_count(broker, "__consumer_offsets") == 7
    assert committed(broker, TopicPartition("orders", 0)) == 1


def test_a_topic_whose_name_was_taken_since_is_put_back_under_another(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    with_an_older_store(broker, tmp_path / "backup")
    without_witness(broker)
    broker.start()
    create(broker, "late")
    broker.stop()
    answer = recover("put-back", broker.data_dir, "--all")
    assert answer.returncode == 1
    assert "Another topic has the name 'late'" in answer.stderr
    assert "--as" in answer.stderr
    assert (broker.data_dir / "late-0.0-stray").exists()
    assert recover("put-back", broker.data_dir, "late-0.0-stray", "--as", "rescued").returncode == 0
    broker.start()
    assert (read(broker, "rescued"), read(broker, "late")) == (["c", "d", "e"], [])


def commit_as(broker: BrokerProcess, group: str, *positions: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=list(positions), asynchronous=False)
    consumer.close()


def committed_by(broker: BrokerProcess, group: str, topic: str = "orders") -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, number) for number in range(3)], timeout=30)
    consumer.close()
    return [position.offset for position in found]


def transact(broker: BrokerProcess, transactional_id: str, value: str, topic: str = "orders") -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    produce_all(producer, [{"topic": topic, "partition": 0, "value": value}])
    producer.commit_transaction(30)


def transactional_ids(broker: BrokerProcess) -> list[str]:
    command = [str(EXECUTABLE), "transaction", "list", "--json", "--bootstrap-server", broker.bootstrap]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    return sorted(each["transactional_id"] for each in listed)


@pytest.mark.parametrize("count_since", ["3", "50"])
def test_internal_topics_that_came_into_use_since_are_merged_and_neither_loses_anything(
    start_broker: StartBroker, count_since: str
) -> None:
    broker = start_broker(settings={"offsets.topic.num.partitions": "7"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", 3, 1)], operation_timeout=20)["orders"].result(60)
    send(broker, "orders", ["a"] * 20)
    commit_as(broker, "both", TopicPartition("orders", 0, 5), TopicPartition("orders", 1, 6))
    commit_as(broker, "old", TopicPartition("orders", 2, 7))
    transact(broker, "old-id", "x")
    transact(broker, "both-ids", "x")
    without_a_store(broker)
    # The user's topic comes back, the broker's own come into use before they do.
    assert recover("put-back", broker.data_dir, "orders").returncode == 0
    broker.settings = {"offsets.topic.num.partitions": count_since}
    broker.start()
    commit_as(broker, "both", TopicPartition("orders", 0, 1), TopicPartition("orders", 2, 2))
    commit_as(broker, "new", TopicPartition("orders", 0, 3))
    transact(broker, "both-ids", "y")
    transact(broker, "new-id", "y")
    broker.kill()

    restored = json.loads(recover("put-back", broker.data_dir, "--all", "--json").stdout)
    assert {topic["topic"] for topic in restored} == {"__consumer_offsets", "__transaction_state"}
    assert all(topic["merged"]["newer"] == 1 for topic in restored)
    broker.start()
    assert committed_by(broker, "both") == [1, 6, 2], "the newer ones stand, the others are kept"
    assert committed_by(broker, "old") == [-1001, -1001, 7]
    assert committed_by(broker, "new") == [3, -1001, -1001]
    assert transactional_ids(broker) == ["both-ids", "new-id", "old-id"]
    assert list(broker.data_dir.glob("*-merged")), "the old directories are kept"
    assert not list(broker.data_dir.glob("*-stray"))
    broker.stop()
    assert "Nothing is set aside." in recover("put-back", broker.data_dir, "--all").stderr


def put_back_in(directory: Path, filesystem: OsFilesystem) -> list[dict[str, Any]]:
    """`cordwood recover put-back --all` on this filesystem."""
    held = DataDirectory(filesystem, str(directory))
    held.take()
    try:
        return asyncio.run(restore(held, [], everything=True, new_name=None, now=at(int(time.time() * 1000))))
    finally:
        held.release()
        filesystem.close()


def test_a_put_back_that_is_killed_at_any_step_can_be_given_again(start_broker: StartBroker, tmp_path: Path) -> None:
    """A user's topic comes back, the broker's own are merged. The steps are changes of files, appends and renames."""
    broker = start_broker()
    create(broker, "orders")
    send(broker, "orders", ["a", "b", "c"])
    commit_as(broker, "old", TopicPartition("orders", 0, 2))
    transact(broker, "old-id", "d")
    without_a_store(broker)
    broker.start()
    create(broker, "later")
    commit_as(broker, "new", TopicPartition("later", 0, 0))
    transact(broker, "new-id", "e", topic="later")
    broker.kill()
    lived: list[Path] = []
    for changes in range(400):
        directory = tmp_path / f"killed-{changes}"
        shutil.copytree(broker.data_dir, directory)
        filesystem = KilledFilesystem(str(directory))
        filesystem.changes_left = changes
        try:
            put_back_in(directory, filesystem)
        except Killed:
            lived.append(directory)
        else:
            lived.append(directory)
            break
    else:
        pytest.fail("the command does not end")
    assert len(lived) > 10
    # A broker that starts in between sets aside again what is half put back. Either way nothing is lost.
    for place, directory in enumerate([*lived[:: len(lived) // 6], lived[-1]]):
        again = start_broker(directory) if place % 2 else None
        if again is not None:
            again.stop()
        put_back_in(directory, OsFilesystem(str(directory)))
        again = start_broker(directory)
        assert read(again, "orders")[:3] == ["a", "b", "c"]
        assert [committed_by(again, "old")[0], committed_by(again, "new", "later")[0]] == [2, 0]
        assert transactional_ids(again) == ["new-id", "old-id"]
        again.kill()


def test_a_start_on_a_full_disk_beside_unknown_partitions_is_refused_and_changes_nothing(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    try:
        disk = SmallTmpfs(tmp_path, 24)
    except MountUnavailable as reason:
        pytest.skip(str(reason))
    try:
        broker = start_broker(disk.path / "data")
        create(broker, "orders")
        send(broker, "orders", ["a", "b"])
        broker.stop()
        for file in broker.data_dir.glob("metadata.sqlite*"):
            file.unlink()
        assert recover("metadata", broker.data_dir).returncode == 0
        take_the_rest(disk)
        assert "no space left for the metadata store" in refused(broker)
        assert (broker.data_dir / "orders-0").exists()
        (disk.path / "the-rest").unlink()
        broker.start()
        broker.says("orders-0.0-stray is set aside")
        broker.stop()
        assert recover("put-back", broker.data_dir, "--all").returncode == 0
        broker.start()
        assert read(broker, "orders") == ["a", "b"]
        broker.kill()
    finally:
        disk.destroy()


async def delete_in_the_store(data_dir: Path, topic: str) -> None:
    """What a broker leaves that is killed as soon as a deletion is committed: its files are where they were."""
    store = await SqliteStore.open(f"{data_dir}/metadata.sqlite")
    image = ClusterImage(1, BrokerSettings.from_texts({}))
    image.load(await store.list(""))
    (deletion,) = plan_delete_topics(image, [TopicReference(topic)]).values()
    assert isinstance(deletion, TopicDeletion)
    assert (await store.txn(*deletion.plan.commit)).succeeded
    await store.close()


async def tombstones(data_dir: Path) -> list[str]:
    store = await SqliteStore.open(f"{data_dir}/metadata.sqlite")
    found = [item.key for item in (await store.list(DELETED_TOPICS)).items]
    await store.close()
    return found


def test_a_topic_is_gone_also_if_the_broker_was_killed_between_its_deletion_and_that_of_its_files(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    for topic in ("orders", "kept"):
        create(broker, topic)
        send(broker, topic, [topic])
    broker.kill()
    asyncio.run(delete_in_the_store(broker.data_dir, "orders"))
    broker.start()
    assert not list(broker.data_dir.glob("orders-0*"))
    broker.says("orders-0 is deleted")
    create(broker, "orders")
    assert (read(broker, "orders"), read(broker, "kept")) == ([], ["kept"])
    broker.stop()
    broker.start()
    assert "orders-0 is deleted" not in broker.output()
    broker.stop()
    assert not asyncio.run(tombstones(broker.data_dir)), "a tombstone is dropped once the files are gone"


def test_a_deletion_leaves_no_tombstone_once_the_files_are_gone(start_broker: StartBroker) -> None:
    broker = start_broker()
    create(broker, "orders", **{"file.delete.delay.ms": "1000"})
    send(broker, "orders", ["a"])
    delete(broker, "orders")
    eventually(lambda: not list(broker.data_dir.glob("orders*")), what="the files are gone")
    broker.stop()
    assert not asyncio.run(tombstones(broker.data_dir))


def test_a_restored_store_gives_no_producer_the_id_of_an_earlier_one(start_broker: StartBroker, tmp_path: Path) -> None:
    """A log takes the batches of a second producer of one id for repetitions, and acknowledges them unwritten."""
    broker = start_broker()
    create(broker, "orders")
    broker.stop()
    for file in broker.data_dir.glob("metadata.sqlite*"):
        shutil.copy(file, tmp_path)
    broker.start()
    idempotent = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True}
    produce_all(Producer(idempotent), [{"topic": "orders", "partition": 0, "value": "old"}])
    broker.stop()
    for file in tmp_path.glob("metadata.sqlite*"):
        shutil.copy(file, broker.data_dir)
    broker.start()
    idempotent["bootstrap.servers"] = broker.bootstrap
    produce_all(Producer(idempotent), [{"topic": "orders", "partition": 0, "value": "new"}])
    assert read(broker, "orders") == ["old", "new"]


class Killed(BaseException):
    """The process ends here."""


class KilledFilesystem(OsFilesystem):
    """Ends the process before one of its changes to the directory, by number."""

    changes_left = 0

    def _change(self) -> None:
        if self.changes_left == 0:
            raise Killed
        self.changes_left -= 1

    def replace(self, path: str, data: bytes) -> None:
        self._change()
        super().replace(path, data)

    def rename(self, source: str, target: str) -> None:
        self._change()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._change()
        super().remove(path)


async def topics_of(data_dir: Path) -> list[str]:
    store = await SqliteStore.open(f"{data_dir}/metadata.sqlite")
    found = [item.key.removeprefix(TOPIC_NAMES) for item in (await store.list(TOPIC_NAMES)).items]
    await store.close()
    return found


def test_a_repair_that_is_killed_leaves_a_store_that_is_refused_or_has_everything(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    with_an_older_store(broker, tmp_path / "backup")
    (broker.data_dir / "metadata.sqlite-wal").write_bytes(b"")
    for changes in range(20):
        directory, seen = tmp_path / f"killed-{changes}", tmp_path / f"seen-{changes}"
        shutil.copytree(broker.data_dir, directory)
        filesystem = KilledFilesystem(str(directory))
        filesystem.changes_left = changes
        try:
            asyncio.run(repair(filesystem, str(directory)))
            break
        except Killed:
            pass
        finally:
            filesystem.close()
        shutil.copytree(directory, seen)
        with suppress(DamagedStore):
            assert asyncio.run(topics_of(seen)) == ["early", "late"]
        again = OsFilesystem(str(directory))
        asyncio.run(repair(again, str(directory)))
        again.close()
        assert asyncio.run(topics_of(directory)) == ["early", "late"]
    else:
        pytest.fail("the repair does not end")
    assert changes > 5


def test_a_damaged_properties_file_is_refused_and_the_refusal_says_the_way_out(start_broker: StartBroker) -> None:
    broker = start_broker()
    create(broker, "orders")
    send(broker, "orders", ["a", "b"])
    broker.stop()
    properties = broker.data_dir / "meta.properties"
    whole = properties.read_bytes()
    for damaged in (bytes(len(whole)), whole.replace(b"cluster.id=", b"cluster.id=x")):
        properties.write_bytes(damaged)
        assert "If meta.properties is damaged, move it away" in refused(broker)
    properties.unlink()
    broker.start()
    assert read(broker, "orders") == ["a", "b"]
    # The storage id is nowhere else: the directory gets a new one, which means nothing to a broker alone.
    before, after = (
        dict(line.split(b"=", 1) for line in text.splitlines()) for text in (whole, properties.read_bytes())
    )
    assert before.pop(b"storage.id") != after.pop(b"storage.id")
    assert after == before

"""`cordwood.consumer` against a real broker: effects once, whatever the handler, the group and the topic do."""

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.deadline import eventually
from tests.interop.confluent_clients import produce_all

from cordwood.consumer import IdempotentConsumer, PositionLost

PARTITIONS = 2
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.heartbeat.interval.ms": "200",
}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"session.timeout.ms": 2000, "heartbeat.interval.ms": 200},
    "cooperative": {
        "session.timeout.ms": 2000,
        "heartbeat.interval.ms": 200,
        "partition.assignment.strategy": "cooperative-sticky",
    },
    "consumer": {"group.protocol": "consumer"},
}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("effects") / "data", settings=SETTINGS, keep_port=True) as process:
        yield process


@pytest.fixture
def topic(process: BrokerProcess) -> str:
    return new_topic(process, f"topic-{uuid.uuid4().hex[:8]}")


def new_topic(process: BrokerProcess, name: str) -> str:
    administrator = AdminClient({"bootstrap.servers": process.bootstrap})
    administrator.create_topics([NewTopic(name, PARTITIONS)], operation_timeout=20)[name].result(60)
    return name


def fill(process: BrokerProcess, topic: str, start: int, end: int) -> None:
    records = [{"topic": topic, "value": f"v{n}", "partition": n % PARTITIONS} for n in range(start, end)]
    produce_all(Producer({"bootstrap.servers": process.bootstrap, "linger.ms": 1}), records)


class Books:
    """The user's database, with its effects."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.connect() as connection:
            connection.execute("create table if not exists effects (partition_index, place, value)")

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)

    @staticmethod
    def book(cursor: Any, message: Message) -> None:
        entry = (message.partition(), message.offset(), (message.value() or b"").decode())
        cursor.execute("insert into effects values (?, ?, ?)", entry)

    def effects(self, partition: int) -> list[str]:
        found = self.connect().execute(
            "select value from effects where partition_index = ? order by rowid", (partition,)
        )
        return [value for (value,) in found]

    def holds(self, end: int) -> bool:
        """Each record of every partition, once and in order."""
        return all(
            self.effects(partition) == [f"v{n}" for n in range(partition, end, PARTITIONS)]
            for partition in range(PARTITIONS)
        )

    def count(self) -> int:
        return sum(len(self.effects(partition)) for partition in range(PARTITIONS))


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path / "books.db")


Join = Callable[..., IdempotentConsumer]


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def join(process: BrokerProcess, topic: str, books: Books, group: str) -> Iterator[Join]:
    made: list[IdempotentConsumer] = []

    def new(protocol: str = "eager", **settings: Any) -> IdempotentConsumer:
        common = {"bootstrap.servers": process.bootstrap, "group.id": group}
        made.append(IdempotentConsumer({**common, **PROTOCOLS[protocol], **settings}, [topic], books.connect()))
        return made[-1]

    yield new
    for consumer in made:
        consumer.close()


def work(books: Books, *consumers: IdempotentConsumer, until: int) -> None:
    def through() -> bool:
        for consumer in consumers:
            consumer.poll(books.book, timeout_s=0.05, max_records=7)
        return books.count() >= until

    eventually(through, what=f"{until} effects")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_come_and_go_and_every_effect_happens_once(
    process: BrokerProcess, topic: str, books: Books, join: Join, protocol: str
) -> None:
    fill(process, topic, 0, 100)
    first = join(protocol)
    work(books, first, until=40)
    second = join(protocol)
    eventually(
        lambda: (
            [
                first.poll(books.book, timeout_s=0.05, max_records=1),
                second.poll(books.book, timeout_s=0.05, max_records=1),
            ]
            and len(first.positions) == len(second.positions) == 1
        ),
        what="the two share",
    )
    fill(process, topic, 100, 140)
    work(books, first, second, until=140)
    first.close()
    fill(process, topic, 140, 160)
    work(books, second, until=160)
    assert books.holds(160)
    assert sum(second.positions.values()) == 160


@pytest.mark.landing
def test_a_handler_that_fails_leaves_nothing_and_gets_the_same_records_again(
    process: BrokerProcess, topic: str, books: Books, join: Join
) -> None:
    fill(process, topic, 0, 20)
    consumer = join()
    calls = 0

    def fail_sometimes(cursor: Any, message: Message) -> None:
        nonlocal calls
        calls += 1
        books.book(cursor, message)
        if calls % 5 == 3:
            raise ZeroDivisionError("the handler's own")

    failures = 0

    def through() -> bool:
        nonlocal failures
        try:
            consumer.poll(fail_sometimes, timeout_s=0.05, max_records=4)
        except ZeroDivisionError:
            failures += 1
        return books.count() >= 20

    eventually(through, what="all effects")
    assert failures > 0
    assert books.holds(20)


@pytest.mark.landing
def test_a_zombie_that_wakes_up_in_the_middle_cannot_write(
    process: BrokerProcess, topic: str, books: Books, join: Join
) -> None:
    """Its records are in its hands, confirmed; then another takes its partitions over, and it goes on."""
    fill(process, topic, 0, 40)
    zombie = join()
    work(books, zombie, until=10)
    batches = zombie._batches

    def falls_asleep(messages: list[Message]) -> Any:
        """Between reading and writing: nobody hears of it for longer than its session."""
        taken = batches(messages)
        if taken:
            zombie._batches = batches  # type: ignore[method-assign]
            other = IdempotentConsumer(zombie_settings(process, zombie), [topic], books.connect())
            with other:
                for partition in taken:
                    other._places[partition] = zombie._places[partition]
                    other._take(partition)
        return taken

    zombie._batches = falls_asleep  # type: ignore[method-assign]
    before = books.count()
    while zombie._batches == falls_asleep:
        assert zombie.poll(books.book, timeout_s=0.5, max_records=4) == 0
    assert books.count() == before, "its fence was gone"
    work(books, zombie, until=40)
    assert books.holds(40)


def zombie_settings(process: BrokerProcess, zombie: IdempotentConsumer) -> dict[str, Any]:
    return {"bootstrap.servers": process.bootstrap, "group.id": zombie._group, **PROTOCOLS["eager"]}


@pytest.mark.parametrize("protocol", ["eager", "consumer"])
def test_a_member_that_was_away_too_long_writes_nothing_and_comes_back(
    process: BrokerProcess, topic: str, books: Books, join: Join, protocol: str
) -> None:
    fill(process, topic, 0, 60)
    slow = join(
        protocol, **{"max.poll.interval.ms": 6000} if protocol == "consumer" else {"max.poll.interval.ms": 2000}
    )
    work(books, slow, until=10)
    quick = join(protocol)
    eventually(
        lambda: [quick.poll(books.book, timeout_s=0.05, max_records=3)] and len(quick.positions) == PARTITIONS,
        what="the other has all partitions",
    )
    fill(process, topic, 60, 80)
    work(books, quick, slow, until=80)
    assert books.holds(80)


def test_a_group_goes_on_where_it_committed_before_it_kept_its_positions_itself(
    process: BrokerProcess, topic: str, books: Books, group: str, join: Join
) -> None:
    fill(process, topic, 0, 20)
    # Before anybody joins: a group with members takes commits from them alone.
    plain = Consumer({"bootstrap.servers": process.bootstrap, "group.id": group})
    plain.commit(offsets=[TopicPartition(topic, partition, 4) for partition in range(PARTITIONS)], asynchronous=False)
    plain.close()
    work(books, join(), until=12)
    assert books.effects(0) == [f"v{n}" for n in range(8, 20, 2)]


def test_a_new_group_can_begin_at_the_end(process: BrokerProcess, topic: str, books: Books, join: Join) -> None:
    fill(process, topic, 0, 20)
    consumer = join(**{"auto.offset.reset": "latest"})
    eventually(lambda: [consumer.poll(books.book, timeout_s=0.05)] and consumer.positions, what="an assignment")
    fill(process, topic, 20, 24)
    work(books, consumer, until=4)
    assert (books.effects(0), books.effects(1)) == (["v20", "v22"], ["v21", "v23"])


def test_the_broker_shows_the_groups_lag(process: BrokerProcess, topic: str, books: Books, join: Join) -> None:
    fill(process, topic, 0, 20)
    consumer = join()
    work(books, consumer, until=20)
    asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]

    def committed() -> list[int]:
        consumer.poll(books.book, timeout_s=0.05)
        return [each.offset for each in consumer._consumer.committed(asked, timeout=10)]

    eventually(committed, to_be=[10, 10], what="the positions at the broker")


def test_a_position_that_retention_took_is_said_and_not_skipped(
    process: BrokerProcess, topic: str, books: Books, join: Join
) -> None:
    fill(process, topic, 0, 20)
    first = join()
    work(books, first, until=20)
    first.close()
    fill(process, topic, 20, 40)
    administrator = AdminClient({"bootstrap.servers": process.bootstrap})
    cut = [TopicPartition(topic, partition, 15) for partition in range(PARTITIONS)]
    for future in administrator.delete_records(cut).values():
        future.result(60)
    second = join()

    def said() -> bool:
        try:
            second.poll(books.book, timeout_s=0.1)
        except PositionLost:
            return True
        return False

    eventually(said, what="the loss is said")
    eventually(said, what="it is said again")
    assert books.count() == 20


def test_a_topic_that_is_created_anew_is_read_from_its_beginning(
    process: BrokerProcess, topic: str, books: Books, join: Join
) -> None:
    fill(process, topic, 0, 20)
    first = join()
    work(books, first, until=20)
    first.close()
    administrator = AdminClient({"bootstrap.servers": process.bootstrap})
    administrator.delete_topics([topic], operation_timeout=20)[topic].result(60)
    new_topic(process, topic)
    fill(process, topic, 100, 140)
    work(books, join(), until=60)
    assert books.effects(0)[10:] == [f"v{n}" for n in range(100, 140, 2)]


def test_a_database_that_is_closed_is_said_at_the_next_poll(process: BrokerProcess, topic: str, books: Books) -> None:
    connection = books.connect()
    settings = {"bootstrap.servers": process.bootstrap, "group.id": f"group-{uuid.uuid4().hex[:8]}"}
    with IdempotentConsumer(settings, [topic], connection) as consumer:
        connection.close()

        def said() -> bool:
            try:
                consumer.poll(books.book, timeout_s=0.1)
            except sqlite3.ProgrammingError:
                return True
            return False

        eventually(said, what="the database's error")


def test_a_database_that_is_locked_at_an_assignment_delays_it(
    process: BrokerProcess, topic: str, books: Books, group: str
) -> None:
    fill(process, topic, 0, 20)
    connection = sqlite3.connect(books.path, timeout=0.1)
    settings = {"bootstrap.servers": process.bootstrap, "group.id": group, **PROTOCOLS["eager"]}
    with IdempotentConsumer(settings, [topic], connection) as consumer:
        other = sqlite3.connect(books.path, isolation_level=None)
        other.execute("begin immediate")

        def said() -> bool:
            try:
                consumer.poll(books.book, timeout_s=0.1)
            except sqlite3.OperationalError:
                return True
            return False

        eventually(said, what="the database's error")
        other.execute("commit")
        other.close()
        work(books, consumer, until=20)
    assert books.holds(20)


@pytest.mark.parametrize("where", ["_batches", "_confirmed"])
def test_records_that_were_handed_out_when_a_poll_failed_come_again(
    process: BrokerProcess, topic: str, books: Books, join: Join, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    fill(process, topic, 0, 20)
    consumer = join()
    real = getattr(consumer, where)
    failures = 0

    def fails_twice(given: Any) -> Any:
        nonlocal failures
        if given and failures < 2:
            failures += 1
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        return real(given)

    monkeypatch.setattr(consumer, where, fails_twice)

    def failed() -> bool:
        try:
            consumer.poll(books.book, timeout_s=0.1, max_records=5)
        except KafkaException:
            return failures == 2
        return False

    eventually(failed, what="two failures")
    work(books, consumer, until=20)
    assert books.holds(20)


def test_records_that_were_handed_out_when_a_poll_was_interrupted_come_again(
    process: BrokerProcess, topic: str, books: Books, join: Join
) -> None:
    class Interrupted:
        """The library as an interrupt finds it: the records are taken out of it, and nobody gets them."""

        def __init__(self, library: Consumer) -> None:
            self.library = library
            self.dropped = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.library, name)

        def consume(self, count: int, timeout_s: float) -> list[Message]:
            messages: list[Message] = self.library.consume(count, timeout_s)
            if messages and not self.dropped:
                self.dropped = len(messages)
                raise KeyboardInterrupt
            return messages

    fill(process, topic, 0, 20)
    consumer = join()
    library = Interrupted(consumer._consumer)
    consumer._consumer = library  # type: ignore[assignment]

    def interrupted() -> bool:
        try:
            consumer.poll(books.book, timeout_s=0.1, max_records=5)
        except KeyboardInterrupt:
            return True
        return False

    eventually(interrupted, what="an interrupt")
    assert library.dropped
    work(books, consumer, until=20)
    assert books.holds(20)


class PartlyDown(sqlite3.Connection):
    """A database that does not have the shard with the second partition's position, until it is up."""

    down = True

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(PartlyDownCursor)


class PartlyDownCursor(sqlite3.Cursor):
    def execute(self, statement: str, values: Any = ()) -> Any:
        if self.connection.down and "cordwood_positions" in statement and values[-1:] == (1,):  # type: ignore[attr-defined]
            raise sqlite3.OperationalError("down")
        return super().execute(statement, values)


def test_a_partition_that_is_revoked_before_it_could_be_taken_stops_nobody(
    process: BrokerProcess, topic: str, books: Books, group: str
) -> None:
    connection = sqlite3.connect(books.path, timeout=60, factory=PartlyDown)
    settings = {"bootstrap.servers": process.bootstrap, "group.id": group, **PROTOCOLS["consumer"]}
    neighbour = Consumer({**settings, "enable.auto.commit": False})
    with IdempotentConsumer(settings, [topic], connection, paramstyle="qmark") as consumer:

        def polled() -> None:
            with suppress(sqlite3.OperationalError):
                consumer.poll(books.book, timeout_s=0.1)

        def half_taken() -> bool:
            polled()
            return (list(consumer.positions), consumer._untaken) == ([(topic, 0)], {(topic, 1)})

        eventually(half_taken, what="one partition that is taken")
        neighbour.subscribe([topic])

        def shared() -> bool:
            polled()
            neighbour.poll(0)
            return [each.partition for each in neighbour.assignment()] == [1]

        eventually(shared, what="the other one for the neighbour")
        connection.down = False
        neighbour.close()
        fill(process, topic, 0, 20)
        work(books, consumer, until=20)
    assert books.holds(20)


def test_the_alias_of_a_setting_is_as_good_as_its_name(process: BrokerProcess, topic: str, books: Books) -> None:
    fill(process, topic, 0, 4)
    settings = {"metadata.broker.list": process.bootstrap, "group.id": f"group-{uuid.uuid4().hex[:8]}"}
    with IdempotentConsumer(settings, [topic], books.connect()) as consumer:
        work(books, consumer, until=4)


@pytest.mark.parametrize("end", [106, 150])
def test_a_topic_that_is_created_anew_under_a_consumer_is_read_from_its_beginning(
    process: BrokerProcess, topic: str, books: Books, join: Join, end: int
) -> None:
    fill(process, topic, 0, 20)
    # It may hear that the topic is gone before it is there again, and then looks for it only so often.
    consumer = join(**{"topic.metadata.refresh.interval.ms": 500})
    work(books, consumer, until=20)
    administrator = AdminClient({"bootstrap.servers": process.bootstrap})
    administrator.delete_topics([topic], operation_timeout=20)[topic].result(60)
    new_topic(process, topic)
    fill(process, topic, 100, end)

    def through() -> bool:
        with suppress(PositionLost, KafkaException):
            consumer.poll(books.book, timeout_s=0.05)
        return books.count() >= end - 80

    eventually(through, what="all effects")
    for partition in range(PARTITIONS):
        assert books.effects(partition)[10:] == [f"v{n}" for n in range(100 + partition, end, 2)]


def test_the_position_is_behind_the_end_of_the_last_transaction(
    process: BrokerProcess, topic: str, books: Books, join: Join
) -> None:
    """Before it, retention would take the marker, and what was lost would be nothing."""
    producer = Producer({"bootstrap.servers": process.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for commits in (True, False):
        producer.begin_transaction()
        for number in range(4):
            producer.produce(topic, value=f"v{number}", partition=0)
        producer.flush(60)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    consumer = join()
    eventually(
        lambda: [consumer.poll(books.book, timeout_s=0.05)] and consumer.positions.get((topic, 0)) == 10,
        what="the position behind both transactions",
    )
    assert books.effects(0) == ["v0", "v1", "v2", "v3"]

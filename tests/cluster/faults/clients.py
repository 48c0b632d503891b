"""Clients whose doings are written down as a history: plain, idempotent and transactional producers, readers by
assignment and in a group.

Owns the clients and their threads. Promises that every send is recorded before the client has it, that whatever leaves
a doubt is recorded as unknown, and that `finish` returns only after readers that began afterwards have drained every
partition.
"""

import contextlib
import faulthandler
import logging
import random
import threading
import time
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.crash.workload import CERTAINLY_FAILED, RECONNECT, name_of, record_polls
from tests.deadline import eventually

from cordwood.history import ProducerRecorder, Recorder, Report, check
from cordwood.history.events import Isolation

T = TypeVar("T")
PARTITIONS = 3
GROUP = "group-readers"
MESSAGE_TIMEOUT_MS = 180_000
TRANSACTION_TIMEOUT_MS = 20_000
CALL_WITHIN_S = 10.0
END_WITHIN_S = 120.0
MAX_IN_FLIGHT = 300


class Gap(NamedTuple):
    """The longest time without an acknowledgement in a partition."""

    seconds: float
    topic: str
    partition: int


class Acknowledgements:
    """When records of steady senders were acknowledged, by partition: how long each waited for the next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_s: dict[tuple[str, int], float] = {}
        self._longest: dict[tuple[str, int], float] = defaultdict(float)
        self.count = 0

    def acked(self, topic: str, partition: int) -> None:
        now_s = time.monotonic()
        with self._lock:
            self.count += 1
            key = (topic, partition)
            self._longest[key] = max(self._longest[key], now_s - self._last_s.get(key, now_s))
            self._last_s[key] = now_s

    def come_everywhere(self) -> bool:
        """Waits until every partition acknowledges again; False if one does not within the bound."""
        since_s = time.monotonic()
        while time.monotonic() < since_s + END_WITHIN_S:
            with self._lock:
                if len(self._last_s) == PARTITIONS and all(last_s > since_s for last_s in self._last_s.values()):
                    return True
            time.sleep(0.05)
        return False

    def longest_gap(self) -> Gap:
        """Since the last question; what still waits counts with what it has waited."""
        now_s = time.monotonic()
        with self._lock:
            gaps = [Gap(max(self._longest[key], now_s - last_s), *key) for key, last_s in self._last_s.items()]
            self._longest.clear()
        return max(gaps, default=Gap(0.0, "", 0))


class _Sender:
    """What producers of all kinds share: one sequence of sends, each with its end."""

    def __init__(
        self, who: str, topic: str, recorder: ProducerRecorder, acknowledgements: Acknowledgements | None, pace_s: float
    ) -> None:
        self.who = who
        self.topic = topic
        self.recorder = recorder
        self.pace_s = pace_s
        self.in_flight = 0
        self.errors: list[KafkaError] = []
        self._acknowledgements = acknowledgements
        self._number = 0

    def send(self, client: Producer, transaction: str | None = None, what: str = "") -> None:
        """The next record; `what` begins its value."""
        name = f"{what}{self.who}-{self._number}"
        partition = self._number % PARTITIONS
        self._number += 1
        self.recorder.send(self.topic, name, transaction=transaction)
        self.in_flight += 1
        client.produce(self.topic, value=name.encode().ljust(100, b"."), partition=partition, on_delivery=self.done)

    def done(self, error: KafkaError | None, message: Message) -> None:
        self.in_flight -= 1
        name = name_of(message)
        partition = message.partition()
        if error is None:
            assert partition is not None
            self.recorder.acked(self.topic, name, partition, message.offset())
            if self._acknowledgements is not None:
                self._acknowledgements.acked(self.topic, partition)
            return
        self.errors.append(error)
        if error.code() in CERTAINLY_FAILED - {KafkaError._PURGE_QUEUE}:  # purged records may have been sent before
            self.recorder.failed(self.topic, name)
        else:
            self.recorder.unknown(self.topic, name)


class LastWords(logging.Handler):
    """The last lines that a client logged: what it does while nothing is acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=20_000)
        self.logger = logging.Logger("client", logging.DEBUG)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{record.created:.3f} {record.getMessage()}\n")

    def write(self, path: Path) -> None:
        path.write_text("".join(self._lines))


class SteadySender(_Sender):
    """Sends at a steady pace, as long as acknowledgements come."""

    client: Producer
    said: LastWords

    def run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            if self.in_flight < MAX_IN_FLIGHT:
                self.send(self.client)
            self.client.poll(self.pace_s)

    def end(self, within_s: float) -> None:
        left = self.client.flush(within_s)
        assert left == 0, f"{left} records of {self.who} have no outcome after {within_s} s"


class TransactionalSender(_Sender):
    """Writes transactions of a few records over all partitions, and aborts some of them."""

    def __init__(
        self,
        who: str,
        topic: str,
        recorder: ProducerRecorder,
        pace_s: float,
        *,
        connect: Callable[[], Producer],
        seed: int,
    ) -> None:
        super().__init__(who, topic, recorder, None, pace_s)
        self._connect = connect
        self._chance = random.Random(seed)
        self._client: Producer | None = None
        self.committed = 0
        self.fatal: list[str] = []

    def run(self, stopping: threading.Event) -> None:
        number = 0
        while not stopping.is_set():
            client = self._client
            if client is None:
                client = self._client = self._ready(stopping)
                self.in_flight = 0
                continue
            self._play(client, f"{self.who}-t{number}")
            number += 1
            time.sleep(self.pace_s)

    def _ready(self, stopping: threading.Event) -> Producer | None:
        client = self._connect()
        while not stopping.is_set():
            try:
                client.init_transactions(CALL_WITHIN_S)
                return client
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                self.errors.append(error)
                if not error.retriable():
                    return None
        return None

    def _write(self, client: Producer, transaction: str) -> None:
        """What a transaction does before it ends."""
        for _ in range(self._chance.randint(1, 6)):
            self.send(client, transaction)
            client.poll(0)

    def _play(self, client: Producer, transaction: str) -> None:
        self.recorder.begin(transaction)
        try:
            client.begin_transaction()
            self._write(client, transaction)
            if self._chance.random() < 0.2:
                # Without this librdkafka asks for the abort of a transaction that the coordinator may not know yet, and
                # takes the refusal, which Kafka answers as well, for fatal.
                self._settle(client)
                self._until_over(client, client.abort_transaction)
                self.recorder.aborted(transaction)
                return
            self.recorder.committing(transaction)
            self._until_over(client, client.commit_transaction)
            self.recorder.committed(transaction)
            self.committed += 1
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            self.errors.append(error)
            self._after(client, transaction, error)

    def _settle(self, client: Producer) -> None:
        """Waits for the outcome of all records. `flush` would run a record's callback while a fatal error is raised,
        and lose its outcome; `poll` raises a fatal error once, and then serves the callbacks."""
        deadline = time.monotonic() + CALL_WITHIN_S
        while self.in_flight and time.monotonic() < deadline:
            client.poll(0.1)

    def _until_over(self, client: Producer, end: Callable[[float], None]) -> None:
        """Asks again where the outcome is open; raises what says that the transaction cannot end this way."""
        deadline = time.monotonic() + END_WITHIN_S
        while True:
            try:
                end(CALL_WITHIN_S)
                return
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if not error.retriable() or time.monotonic() > deadline:
                    raise
                self.errors.append(error)
                client.poll(0)  # an abort waits until the outcome of purged records is served

    def _after(self, client: Producer, transaction: str, error: KafkaError) -> None:
        if error.txn_requires_abort():
            try:
                self._until_over(client, client.abort_transaction)
                self.recorder.aborted(transaction)
                return
            except KafkaException as failure:
                error = failure.args[0]
                self.errors.append(error)
        # The client can say nothing more of this transaction. The next one with its id ends it, one way or the other.
        # librdkafka gets here also where no broker is wrong: an abort purges records that wait to be sent again, and
        # the next transaction uses their sequence numbers, though the first attempt may be in the log.
        self.fatal.append(f"{transaction}: {error}")
        self.recorder.transaction_unknown(transaction)
        client.purge()
        for _ in range(2):
            with contextlib.suppress(KafkaException):
                self._settle(client)
        self._client = None

    def end(self, within_s: float) -> None:
        if self._client is not None:
            self._client.flush(within_s)


class ClientHangs(Exception):
    """A call of librdkafka does not return long after its own timeout. librdkafka may not find a coordinator again that
    left the metadata for a moment (its issues 5456 and 5511, open in 2.16). An application has to begin anew with
    another client."""


HUNG: list[object] = []
"""Clients that were given up. They are kept, since librdkafka would wait for their calls at their end."""


def within_time(client: object, call: Callable[[], T]) -> T:
    """Raises ClientHangs if a call of this client does not return."""
    answers: list[T] = []
    failures: list[KafkaException] = []

    def guarded() -> None:
        try:
            answers.append(call())
        except KafkaException as failure:
            failures.append(failure)

    calling = threading.Thread(target=guarded, daemon=True)
    calling.start()
    calling.join(3 * CALL_WITHIN_S)
    if calling.is_alive():
        HUNG.append(client)
        raise ClientHangs
    if failures:
        raise failures[0]
    return answers[0]


class Copier(TransactionalSender):
    """Reads one topic as a group of one, and writes a record to another for each that it got, in transactions that
    commit its position as well. A copy begins with the place of what it is a copy of."""

    consume: Callable[[], Consumer]
    _consumer: Consumer | None = None

    def _write(self, client: Producer, transaction: str) -> None:
        if self._consumer is None:
            self._consumer = self.consume()
        messages = [each for each in self._consumer.consume(100, timeout=0.5) if each.error() is None]
        for message in messages:
            self.send(client, transaction, f"{message.partition()}:{message.offset()}@")
        client.poll(0)
        if messages:
            positions = [each for each in self._consumer.position(self._consumer.assignment()) if each.offset >= 0]
            metadata = self._consumer.consumer_group_metadata()
            within_time(client, lambda: client.send_offsets_to_transaction(positions, metadata, CALL_WITHIN_S))

    def _play(self, client: Producer, transaction: str) -> None:
        committed = self.committed
        try:
            super()._play(client, transaction)
        except ClientHangs:
            self.recorder.transaction_unknown(transaction)
            self._client = None
        if self.committed == committed:
            # Nothing of this transaction counts: the next consumer begins at the position of the last one that does.
            self.forget()

    def forget(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


class Clients:
    """Clients on three topics: for plain and idempotent producers, for transactions, and for copies of the first."""

    def __init__(
        self,
        bootstrap: str,
        history: Path,
        act: int,
        seed: int,
        *,
        pace_s: float,
        replicas: int = 3,
        of_producers: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """`of_producers`: settings of all producers."""
        self._bootstrap = bootstrap
        self._of_producers = of_producers
        self._history = history
        self._seed = seed
        self._pace_s = pace_s
        self._replicas = replicas
        self.orders = f"orders-{act}"
        self.payments = f"payments-{act}"
        self.copies = f"copies-{act}"
        self.acknowledgements = Acknowledgements()
        self._recorder = Recorder(history)
        self._stop_sending = threading.Event()
        self._stop_reading = threading.Event()
        self._senders: list[SteadySender | TransactionalSender] = []
        self._sending: list[threading.Thread] = []
        self._stop_copying = threading.Event()
        self._copying: list[threading.Thread] = []
        self._copier: Copier
        self._reading: list[threading.Thread] = []
        self.failures: list[str] = []
        self.hangs: list[str] = []
        """Calls that did not return, of clients that were replaced."""

    @property
    def topics(self) -> tuple[str, ...]:
        return self.orders, self.payments, self.copies

    def start(self) -> None:
        self._create_topics()
        self._add_steady("plain", idempotent=False)
        self._add_steady("idempotent", idempotent=True)
        for number in range(2):
            self._add_transactional(f"transactional-{number}", self._seed + number)
        self._add_copier("copier", self._seed)
        for isolation in ("read_uncommitted", "read_committed"):
            self._add_reader(f"reader-{isolation}", isolation)
        self._add_group_reader("group-reader")

    def explain_silence(self, directory: Path) -> Iterator[str]:
        """Says whether a new client is acknowledged where others are not, and keeps what those said last."""
        for sender in self._senders:
            if isinstance(sender, SteadySender):
                path = directory / f"last-words-{sender.topic}-{sender.who}.log"
                sender.said.write(path)
                yield f"{sender.who} has {sender.in_flight} records without an outcome; its last words: {path}"
        recorder = self._recorder.producer("probe", acks="all", idempotent=False, retries=True)
        acknowledgements = Acknowledgements()
        probe = SteadySender("probe", self.orders, recorder, acknowledgements, self._pace_s)
        probe.client = self._producer(**{"message.timeout.ms": 10_000})
        for _ in range(PARTITIONS):
            probe.send(probe.client)
        probe.client.flush(30)
        yield f"a new client: {acknowledgements.count} of {PARTITIONS} records acknowledged, {probe.errors}"
        metadata = AdminClient({"bootstrap.servers": self._bootstrap}).list_topics(self.orders, timeout=30)
        for index, each in sorted(metadata.topics[self.orders].partitions.items()):
            yield f"{self.orders}-{index}: leader {each.leader}, in sync {each.isrs}"

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        # Under `os` nothing is synced before the answer: the loss of one machine's memory must not matter.
        durability = {self.orders: "disk", self.payments: "os", self.copies: "disk"}
        created = admin.create_topics(
            [
                NewTopic(
                    topic,
                    num_partitions=PARTITIONS,
                    replication_factor=self._replicas,
                    config={
                        "min.insync.replicas": str(min(self._replicas, 2)),
                        "ack.durability": durability[topic],
                        "segment.bytes": str(1 << 20),
                    },
                )
                for topic in self.topics
            ],
            operation_timeout=30,
        )
        for future in created.values():
            future.result(60)

    def _producer(self, **settings: object) -> Producer:
        shared = {
            "bootstrap.servers": self._bootstrap,
            "acks": "all",
            "linger.ms": 2,
            "message.timeout.ms": MESSAGE_TIMEOUT_MS,
            "log_level": 0,  # lost connections are the point
            **RECONNECT,
        }
        return Producer({**shared, **settings, **self._of_producers})

    def _add_steady(self, who: str, *, idempotent: bool) -> None:
        recorder = self._recorder.producer(who, acks="all", idempotent=idempotent, retries=True)
        sender = SteadySender(who, self.orders, recorder, self.acknowledgements, self._pace_s)
        sender.said = LastWords()
        # The logger is served by `poll`, in the sender's own thread.
        speaks = {"debug": "broker,topic,metadata,protocol", "log_level": 7, "logger": sender.said.logger}
        sender.client = self._producer(**{"enable.idempotence": idempotent, **speaks})
        self._senders.append(sender)
        self._start(self._sending, who, lambda: sender.run(self._stop_sending))

    def _add_transactional(self, who: str, seed: int) -> None:
        recorder = self._recorder.producer(who, acks="all", idempotent=True, retries=True)
        settings = {
            "transactional.id": f"{self.payments}-{who}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
        sender = TransactionalSender(
            who,
            self.payments,
            recorder,
            self._pace_s * 2,
            connect=lambda: self._producer(**settings),
            seed=seed,
        )
        self._senders.append(sender)
        self._start(self._sending, who, lambda: sender.run(self._stop_sending))

    def _add_copier(self, who: str, seed: int) -> None:
        recorder = self._recorder.producer(who, acks="all", idempotent=True, retries=True)
        settings = {
            "transactional.id": f"{self.copies}-{who}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
        copier = Copier(who, self.copies, recorder, self._pace_s, connect=lambda: self._producer(**settings), seed=seed)
        group = {"group.id": self.copies, "auto.offset.reset": "earliest", "session.timeout.ms": 10_000}

        def consume() -> Consumer:
            consumer = self._consumer("read_committed", **group)
            consumer.subscribe([self.orders])
            return consumer

        copier.consume = consume
        self._copier = copier
        self._start(self._copying, who, lambda: copier.run(self._stop_copying))

    def _consumer(self, isolation: str, **settings: object) -> Consumer:
        shared = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "no-group",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "isolation.level": isolation,
            "log_level": 0,  # lost connections are the point
            **RECONNECT,
        }
        return Consumer({**shared, **settings})

    def _assigned(self, who: str, isolation: Isolation) -> "_AssignedReader":
        return _AssignedReader(who, self._consumer(isolation), self._recorder, isolation, self.topics)

    def _add_reader(self, who: str, isolation: Isolation) -> None:
        reader = self._assigned(who, isolation)

        def run() -> None:
            while not self._stop_reading.is_set():
                reader.poll()
            reader.close()

        self._start(self._reading, who, run)

    def _add_group_reader(self, who: str) -> None:
        recorder = self._recorder.reader(who, mode="subscribe", isolation="read_committed")
        settings = {"group.id": f"{GROUP}-{self.orders}", "auto.offset.reset": "earliest", "session.timeout.ms": 10_000}
        committed: dict[tuple[str, int], int] = {}

        def subscribed() -> Consumer:
            consumer = self._consumer("read_committed", **settings)
            consumer.subscribe(list(self.topics))
            return consumer

        def run() -> None:
            consumer = subscribed()
            while not self._stop_reading.is_set():
                messages = consumer.consume(500, timeout=0.2)
                for topic in self.topics:
                    record_polls(recorder, topic, [each for each in messages if each.topic() == topic])
                if any(message.error() is None for message in messages):
                    try:
                        self._commit(consumer, committed)
                    except ClientHangs:
                        self.hangs.append(f"the commit of {who}")
                        consumer = subscribed()
            self._look_at_positions(settings, committed)
            with contextlib.suppress(ClientHangs):
                within_time(consumer, consumer.close)

        self._start(self._reading, who, run)

    def _commit(self, consumer: Consumer, committed: dict[tuple[str, int], int]) -> None:
        try:
            done = within_time(consumer, lambda: consumer.commit(asynchronous=False))
        except KafkaException:
            return  # its members change, or its coordinator is away
        for each in done or []:
            if each.error is None:
                committed[each.topic, each.partition] = each.offset

    def _look_at_positions(self, settings: dict[str, object], committed: dict[tuple[str, int], int]) -> None:
        wanted = [TopicPartition(*key) for key in committed]
        if not wanted:
            self.failures.append("the group reader committed nothing")
            return
        asking = _Asking(lambda: self._consumer("read_committed", **settings))
        for found in eventually(lambda: asking.committed(wanted), what="the group's positions"):
            last = committed[found.topic, found.partition]
            if found.offset < last:
                self.failures.append(f"the position in {found.topic}-{found.partition} went from {last} to {found}")
        asking.close()

    def _start(self, threads: list[threading.Thread], who: str, run: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                run()
            except BaseException as failure:
                words = f"{who} failed: {''.join(traceback.format_exception(failure))}"
                print(words, flush=True)
                self.failures.append(words)

        thread = threading.Thread(target=guarded, name=who, daemon=True)
        threads.append(thread)
        thread.start()

    def finish(self) -> Report:
        """Ends the load, drains every partition, and judges the history."""
        self._stop_sending.set()
        _join(self._sending)
        for sender in self._senders:
            sender.end(END_WITHIN_S)
        self._finish_copies()
        self._wait_for_transactions()
        self._stop_reading.set()
        _join(self._reading)
        self._drain("read_uncommitted")
        self._compare_copies(self._drain("read_committed"))
        self._recorder.close()
        for sender in self._senders:
            if isinstance(sender, SteadySender):
                self.failures += [f"{sender.who} cannot go on: {error}" for error in sender.errors if error.fatal()]
        return check(self._history)

    def words(self) -> str:
        """What the clients met."""
        met: dict[str, int] = defaultdict(int)
        for sender in (*self._senders, self._copier):
            for error in sender.errors:
                met[f"{sender.who} {error.name()}"] += 1
            if isinstance(sender, TransactionalSender):
                met[f"{sender.who} committed"] = sender.committed
        for call in self.hangs:
            met[f"{call} hung"] += 1
        return f"{self.acknowledgements.count} acks; " + ", ".join(f"{name}: {count}" for name, count in met.items())

    def abandon(self) -> None:
        """For the end of a run that failed: no client goes on in the background."""
        self._stop_sending.set()
        self._stop_copying.set()
        self._stop_reading.set()
        for thread in (*self._sending, *self._copying, *self._reading):
            thread.join(CALL_WITHIN_S)
        self._recorder.close()

    def _wait_for_transactions(self) -> None:
        """Until no transaction is open: what a coordinator or its markers still have to end."""
        askings = [
            _Asking(lambda isolation=isolation: self._consumer(isolation))  # type: ignore[misc]
            for isolation in ("read_uncommitted", "read_committed")
        ]

        def all_ended() -> bool:
            for topic in self.topics:
                for partition in range(PARTITIONS):
                    ends = {asking.end(topic, partition) for asking in askings}
                    if len(ends) > 1 or None in ends:
                        return False
            return True

        eventually(all_ended, what="the end of all transactions")
        for asking in askings:
            asking.close()

    def _finish_copies(self) -> None:
        """Until the copier's position is the end of all that there is to copy."""
        asking = _Asking(lambda: self._consumer("read_committed", **{"group.id": self.copies}))
        wanted = [TopicPartition(self.orders, partition) for partition in range(PARTITIONS)]

        def all_copied() -> bool:
            ends = [asking.end(self.orders, partition) for partition in range(PARTITIONS)]
            found = {each.partition: each.offset for each in asking.committed(wanted)}
            return all(end is not None and found.get(partition, -1) >= end for partition, end in enumerate(ends))

        eventually(all_copied, what="a copy of everything")
        asking.close()
        self._stop_copying.set()
        _join(self._copying)
        self._copier.forget()
        self._copier.end(END_WITHIN_S)

    def _compare_copies(self, read: list[tuple[str, int, int, str]]) -> None:
        originals = {f"{partition}:{offset}" for topic, partition, offset, _ in read if topic == self.orders}
        copied = Counter(name.partition("@")[0] for topic, _, _, name in read if topic == self.copies)
        twice = [place for place, count in copied.items() if count > 1]
        for words, places in (
            ("copied more than once", twice),
            ("never copied", sorted(originals - copied.keys())),
            ("copied, and not there", sorted(copied.keys() - originals)),
        ):
            if places:
                self.failures.append(f"{len(places)} records of {self.orders} are {words}: {places[:5]}")

    def _drain(self, isolation: Isolation) -> list[tuple[str, int, int, str]]:
        """All records, each with its place."""
        reader = self._assigned(f"final-{isolation}", isolation)
        read: list[tuple[str, int, int, str]] = []
        deadline = time.monotonic() + END_WITHIN_S
        while not reader.at_end:
            assert time.monotonic() < deadline, f"{reader.words} after {END_WITHIN_S} s"
            for message in reader.poll():
                place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
                read.append((*place, name_of(message)))
        reader.drained()
        reader.close()
        return read


class _AssignedReader:
    """Reads all partitions from their beginning."""

    def __init__(
        self, who: str, consumer: Consumer, recorder: Recorder, isolation: Isolation, topics: tuple[str, ...]
    ) -> None:
        self._consumer = consumer
        self._recorder = recorder.reader(who, isolation=isolation)
        self._topics = topics
        self._all = [(topic, partition) for topic in topics for partition in range(PARTITIONS)]
        self._ends: dict[tuple[str, int], int] = {}
        self._reached: set[tuple[str, int]] = set()
        for topic, partition in self._all:
            self._recorder.positioned(topic, partition, 0)
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in self._all])

    def poll(self) -> list[Message]:
        messages = self._consumer.consume(500, timeout=0.2)
        for topic in self._topics:
            record_polls(self._recorder, topic, [each for each in messages if each.topic() == topic])
        for message in messages:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self._ends[message.topic() or "", message.partition() or 0] = message.offset() or 0
        return [message for message in messages if message.error() is None]

    @property
    def at_end(self) -> bool:
        for key in set(self._all) - self._reached:
            if key in self._ends and self._ends[key] >= _end(self._consumer, *key):
                self._reached.add(key)
        return len(self._reached) == len(self._all)

    @property
    def words(self) -> str:
        return f"{len(self._reached)} of {len(self._all)} partitions are drained"

    def drained(self) -> None:
        for topic, partition in self._all:
            self._recorder.drained(topic, partition)

    def close(self) -> None:
        self._consumer.close()


def _end(consumer: Consumer, topic: str, partition: int) -> int:
    ends = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=5)
    if ends is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    end: int = ends[1]
    return end


class _Asking:
    """Asks for ends and positions with one client until that fails, and then with another: librdkafka may not find a
    broker again that left the metadata for a moment."""

    def __init__(self, connect: Callable[[], Consumer]) -> None:
        self._connect = connect
        self._client: Consumer | None = None

    def _answer(self, ask: Callable[[Consumer], T]) -> T | None:
        client = self._client = self._client or self._connect()
        try:
            return within_time(client, lambda: ask(client))
        except (KafkaException, ClientHangs):
            self.close()
            return None

    def end(self, topic: str, partition: int) -> int | None:
        return self._answer(lambda client: _end(client, topic, partition))

    def committed(self, wanted: list[TopicPartition]) -> list[TopicPartition]:
        return self._answer(lambda client: list(client.committed(wanted, timeout=5))) or []

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and client not in HUNG:
            with contextlib.suppress(ClientHangs):
                within_time(client, client.close)


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(END_WITHIN_S)
        if thread.is_alive():
            faulthandler.dump_traceback(all_threads=True)
            raise AssertionError(f"{thread.name} hangs")

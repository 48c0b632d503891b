"""A history told by hand, event by event, for the tests of the checker."""

from dataclasses import dataclass, field

from cordwood.history import Anomaly, ProducerRecorder, ReaderRecorder, Recorder, Report, check
from cordwood.history.events import Acks, Event, Isolation, Mode, Start

TOPIC = "orders"


@dataclass
class Story:
    """A history told by hand, on a clock that counts events."""

    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.recorder = Recorder(sink=self.events.append, clock_ms=lambda: float(len(self.events)))

    def producer(
        self, who: str = "p1", acks: Acks = "all", *, idempotent: bool = True, retries: bool = True
    ) -> ProducerRecorder:
        return self.recorder.producer(who, acks=acks, idempotent=idempotent, retries=retries)

    def reader(
        self,
        who: str = "r1",
        mode: Mode = "assign",
        isolation: Isolation = "read_uncommitted",
        start: Start = "earliest",
    ) -> ReaderRecorder:
        return self.recorder.reader(who, mode=mode, isolation=isolation, start=start)

    def check(self) -> Report:
        return check(self.events)

    def found(self) -> dict[Anomaly, int]:
        return dict(self.check().counts)


def write(
    producer: ProducerRecorder, value: str, offset: int | None, partition: int = 0, transaction: str | None = None
) -> None:
    producer.send(TOPIC, value, transaction=transaction)
    producer.acked(TOPIC, value, partition, offset)


def read(reader: ReaderRecorder, *records: tuple[int, str], partition: int = 0) -> None:
    reader.polled(TOPIC, partition, records)

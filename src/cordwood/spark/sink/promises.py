"""How the rows of one attempt of a task come to be visible: the three ways, and the choice among them.

Every way is used alike: `begin` before the first row is sent, `complete` when every row is acknowledged, or `abandon`
if that did not come to be. Making things visible is the driver's (`commits.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.model.identifiers import TopicPartition
from cordwood.spark.sink.options import Guarantee, SinkOptions
from cordwood.spark.sink.protocol import Slot


@dataclass(frozen=True)
class WriteIdentity:
    """Which write an attempt belongs to."""

    family: str
    batch_id: int
    task: int
    attempt: int
    repeatable: bool
    """Whether a later attempt, even by another driver, is for the same batch and should find what this one did."""


class Producer(NamedTuple):
    """In whose name batches are sent."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class Promise(ABC):
    """One attempt's way to exactly once, or to less."""

    guarantee: Guarantee
    slot: Slot | None = None

    @abstractmethod
    def begin(self) -> Producer | None:
        """None: this batch is written already; the attempt takes its input to the end and writes nothing."""

    def complete(self, written: Collection[TopicPartition]) -> None:  # noqa: B027 - most ways have nothing to add
        """Every row is acknowledged, in these partitions."""

    @abstractmethod
    def abandon(self) -> None:
        """The attempt failed. Frees at once what would otherwise be freed by time. Raises nothing."""


def transaction_timeout_ms(options: SinkOptions, guarantee: Guarantee) -> int:
    """How long a transaction may show no sign of life.

    A family is renewed while any of its tasks runs; what has to be survived is the time in which none does, say until
    lost executors are replaced. On an Apache Kafka nobody renews: the whole batch has to fit, so it is the most that
    brokers allow by default.
    """
    if options.transaction_timeout_ms is not None:
        return options.transaction_timeout_ms
    return 300_000 if guarantee is Guarantee.MICRO_BATCH else 900_000

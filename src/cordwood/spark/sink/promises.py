"""The promise of one attempt of a task about its rows: the interface of its three kinds.

All kinds are used alike: `begin` before the first row is sent, `complete` when every row is acknowledged, or `abandon`
after a failure. The driver makes rows visible (`commits.py`).
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
    """The write that an attempt belongs to."""

    family: str
    batch_id: int
    task: int
    attempt: int
    repeatable: bool
    """True if a later attempt, even by another driver, is for the same batch and has to find the work of this one."""


class Producer(NamedTuple):
    """The producer in whose name batches are sent."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class Promise(ABC):
    """One attempt's way to exactly once, or to a weaker guarantee."""

    guarantee: Guarantee
    slot: Slot | None = None

    @abstractmethod
    def begin(self) -> Producer | None:
        """Opens the attempt. None if the batch is written already: the attempt takes its input to the end and writes
        nothing."""

    def complete(self, written: Collection[TopicPartition]) -> None:  # noqa: B027 - most ways have nothing to add
        """Called when every row is acknowledged, in these partitions."""

    @abstractmethod
    def abandon(self) -> None:
        """Called after a failure. Frees at once what a timeout would free later. Raises nothing."""


def transaction_timeout_ms(options: SinkOptions, guarantee: Guarantee) -> int:
    """The time after which the broker gives up a transaction without a sign of life.

    A family is renewed while any of its tasks runs; the timeout has to cover the time in which none runs, such as the
    replacement of lost executors. On an Apache Kafka transactions are not renewed: the whole batch has to fit, so the
    timeout is the most that brokers allow by default.
    """
    if options.transaction_timeout_ms is not None:
        return options.transaction_timeout_ms
    return 300_000 if guarantee is Guarantee.MICRO_BATCH else 900_000

"""The package says that it is typed, so that type checkers of users look into it. The programs of users below are for
mypy, which reads this file in `make lint` and finds no fault in them."""

import sqlite3
from importlib.resources import files

import pytest
from confluent_kafka import Message

from cordwood.consumer import IdempotentConsumer
from cordwood.embedded import InProcessLog


@pytest.mark.parametrize("package", ["cordwood", "pyspark_cordwood"])
def test_the_package_is_marked_as_typed(package: str) -> None:
    assert (files(package) / "py.typed").is_file()


def book(cursor: sqlite3.Cursor, message: Message) -> None:
    cursor.execute("insert into payments values (?)", (message.value(),))


def consume_with_effects(consumer: IdempotentConsumer) -> int:
    return consumer.poll(book)


def fill(log: InProcessLog) -> dict[int, int]:
    """Appends pairs, and triples with headers, and takes places apart."""
    pairs = [("ada", "placed"), ("bob", "paid")]
    triples = [(None, b"shipped", [("trace", b"7")])]
    return dict(log.append_many("orders", pairs) + log.append_many("orders", triples))

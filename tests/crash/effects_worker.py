"""A program with effects in a database: a row for each record, in one transaction with its position.

`python effects_worker.py BOOTSTRAP PROTOCOL DATABASE TOTAL`: works until the database has TOTAL effects. The program
can be killed at any time and started again, or put to sleep until its group has given it up.
"""

import sqlite3
import sys
import time
from typing import Any

from confluent_kafka import KafkaException, Message

from cordwood.consumer import IdempotentConsumer

GROUP = "bookkeepers"
TOPIC = "source"
BATCH = 10
EFFECT_S = 0.003
"""An effect takes this long, so that most kills hit a transaction that is half done."""
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"session.timeout.ms": 1500, "heartbeat.interval.ms": 200, "max.poll.interval.ms": 60_000},
    "consumer": {"group.protocol": "consumer"},
}


def book(cursor: Any, message: Message) -> None:
    cursor.execute("insert into effects values (?, ?, ?)", (message.partition(), message.offset(), message.value()))
    time.sleep(EFFECT_S)


def work(bootstrap: str, protocol: str, database: str, total: int) -> None:
    connection = sqlite3.connect(database, timeout=60)
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, **PROTOCOLS[protocol]}
    with IdempotentConsumer(settings, [TOPIC], connection) as consumer:
        while connection.execute("select count(*) from effects").fetchone()[0] < total:
            consumer.poll(book, max_records=BATCH, timeout_s=0.2)


def patiently(bootstrap: str, protocol: str, database: str, total: int) -> None:
    """Starts over when the broker was away for too long to read on."""
    while True:
        try:
            work(bootstrap, protocol, database, total)
        except KafkaException as problem:
            print(f"starts over: {problem}", flush=True)
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    patiently(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

"""Consumers as programs have them, sharing a topic in a group: how long a rebalance is for them.

Runs as a process of its own and prints one line of JSON, as load.c does. Every consumer is librdkafka's, as
confluent-kafka brings it, with its default settings, and has a thread that polls; the one that joins and leaves has the
main thread. Timed from subscribe() or unsubscribe() to the moment when the group has settled: every partition has an
owner, and everybody's share is as large as any other, or smaller by one. Promises: a partition that two consumers have
at once ends the run with an error; a group that never settles does, too.

It is not a mode of load.c, because the librdkafka that Debian ships (2.0) has no consumer protocol. The times are those
of heartbeats, so that a microsecond of Python is nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from benchmarks.load import Run

SLACK_S = 0.15
"""How late a heartbeat may be."""

LOOK_S = 0.002
"""How long the one that joins and leaves polls before the main thread looks whether the group has settled."""


def start(bootstrap: str, topic: str, **flags: object) -> Run:
    """Start such a process. Flags are the options of `main` (`members=10`, `heartbeat_ms=3000`)."""
    command = [sys.executable, "-m", "benchmarks.consumers", "--bootstrap", bootstrap, "--topic", topic]
    for name, value in flags.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    return Run(command, Path(__file__).resolve().parents[1])


class NotSettled(Exception):
    """The group did not share the topic as it should have."""


class Shares:
    """The owner of each partition, as the consumers were told."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._owners: dict[int, int] = {}
        self._present: set[int] = set()
        self._fault = ""
        self._lock = threading.Lock()
        self._changed_at_s = time.monotonic()

    def expect(self, present: set[int]) -> None:
        with self._lock:
            self._present = set(present)

    def given(self, member: int, partitions: Sequence[TopicPartition]) -> None:
        told_at_s = time.monotonic()
        with self._lock:
            for each in partitions:
                owner = self._owners.setdefault(each.partition, member)
                if owner != member:
                    self._fault = f"partition {each.partition} went to {member} while {owner} had it"
            self._changed_at_s = told_at_s

    def taken(self, member: int, partitions: Sequence[TopicPartition]) -> None:
        told_at_s = time.monotonic()
        with self._lock:
            for each in partitions:
                if self._owners.get(each.partition) == member:
                    del self._owners[each.partition]
            self._changed_at_s = told_at_s

    def settled_at_s(self) -> float | None:
        """The time of the last change, if the present members now share the partitions evenly."""
        with self._lock:
            if self._fault:
                raise NotSettled(self._fault)
            return self._changed_at_s if self._are_even() else None

    def __str__(self) -> str:
        with self._lock:
            return f"{len(self._present)} members have {dict(Counter(self._owners.values()))}"

    def _are_even(self) -> bool:
        sizes = Counter(self._owners.values())
        if not self._present:
            return not sizes
        least, more = divmod(self._partitions, len(self._present))
        return (
            len(self._owners) == self._partitions
            and set(sizes) <= self._present
            and all(sizes[member] in (least, least + bool(more)) for member in self._present)
        )


class Group:
    """The consumers of one group: all but the last join at the start and stay."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._shares = Shares(options.partitions)
        self._others = set(range(options.members - 1))
        consumers = [self._connected() for _ in range(options.members)]
        self._last = consumers.pop()
        for number, consumer in enumerate(consumers):
            self._subscribe(consumer, number)
            threading.Thread(target=_poll_forever, args=(consumer,), daemon=True).start()
        self._settle(self._others)

    def one_joins(self) -> float:
        """The seconds that it takes."""
        began_s = time.monotonic()
        self._subscribe(self._last, len(self._others))
        return self._settle({*self._others, len(self._others)}) - began_s

    def one_leaves(self) -> float:
        """The seconds that it takes."""
        began_s = time.monotonic()
        self._last.unsubscribe()
        return self._settle(self._others) - began_s

    def rest(self, heartbeats: float) -> None:
        """Waits for this many heartbeat intervals, and a little longer."""
        until_s = time.monotonic() + SLACK_S + heartbeats * self._options.heartbeat_ms / 1000
        while time.monotonic() < until_s:
            self._last.poll(LOOK_S)

    def _connected(self) -> Consumer:
        where = {"bootstrap.servers": self._options.bootstrap, "log_level": 0}
        return Consumer({**where, "group.id": self._options.group, "group.protocol": self._options.protocol})

    def _subscribe(self, consumer: Consumer, number: int) -> None:
        def given(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self._shares.given(number, partitions)

        def taken(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self._shares.taken(number, partitions)

        consumer.subscribe([self._options.topic], on_assign=given, on_revoke=taken, on_lost=taken)

    def _settle(self, present: set[int]) -> float:
        self._shares.expect(present)
        deadline_s = time.monotonic() + self._options.timeout
        while (settled_at_s := self._shares.settled_at_s()) is None:
            if time.monotonic() > deadline_s:
                raise NotSettled(f"not settled within {self._options.timeout:.0f} s: {self._shares}")
            self._last.poll(LOOK_S)
        return settled_at_s


def _poll_forever(consumer: Consumer) -> None:
    while True:
        consumer.poll(1)


def churn(options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """The seconds of each join, and of each leave.

    Before a change every member has sent a heartbeat since the last one; changes are spread evenly over the interval.
    """
    group = Group(options)
    alone = options.members == 1
    joining, leaving = [], []
    for number in range(options.changes):
        phase = (number + 0.5) / options.changes
        group.rest(1 if alone else 1 + phase)
        joining.append(group.one_joins())
        group.rest(0 if alone else 2 - phase)
        leaving.append(group.one_leaves())
    return joining, leaving


def main() -> int:
    parser = argparse.ArgumentParser(description="Consumers of a group: one more joins, one leaves.")
    for name in ("bootstrap", "topic", "group"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--protocol", choices=("classic", "consumer"), required=True)
    parser.add_argument("--members", type=int, required=True, help="with the one that joins and leaves")
    parser.add_argument("--partitions", type=int, required=True, help="of the topic")
    parser.add_argument("--changes", type=int, required=True, help="how often one joins, and leaves")
    parser.add_argument("--heartbeat-ms", type=int, required=True, help="the interval in force: one to two are waited")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for the group to settle after a change")
    options = parser.parse_args()
    began_s = time.monotonic()
    try:
        joining, leaving = churn(options)
    except NotSettled as error:
        print(error, file=sys.stderr)
        return 1
    line = {
        "messages": 2 * options.changes,
        "bytes": 0,
        "seconds": time.monotonic() - began_s,
        "cpu_s": time.process_time(),
        "busiest_thread_s": time.thread_time(),
        "joining_p50_us": statistics.median(joining) * 1e6,
        "leaving_p50_us": statistics.median(leaving) * 1e6,
        "joining_ms": [round(each * 1000, 1) for each in joining],
        "leaving_ms": [round(each * 1000, 1) for each in leaving],
    }
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # closing a hundred consumers one by one takes long and is not measured

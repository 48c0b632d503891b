"""How long a group needs to share its work anew when a member joins or leaves.

The members speak the protocol themselves and act on every answer at once, in C, so that the time is the broker's. A
real client learns of a change only by the answer to a heartbeat, seconds apart: `rebalances` has those.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.bench import Bench, Measured, Sample
from benchmarks.figures import REBALANCE, Metric
from benchmarks.systems import System, keep_internal_topics

PARTITIONS = 200
MEMBERS = (1, 10, 100)
PROTOCOLS = {"classic": "classic", "consumer": "consumer protocol"}
_ALONE = (Metric("joins, p50", "ms", REBALANCE), Metric("broker CPU per rebalance", "ms"))
_MANY = (
    Metric("one more joins, p50", "ms", REBALANCE),
    Metric("one leaves, p50", "ms", REBALANCE),
    Metric("broker CPU per rebalance", "ms"),
)


def groups(bench: Bench) -> None:
    """A topic of 200 partitions. A rebalance is over when the last member has been told what it has now."""
    systems = bench.pair()
    with ExitStack() as stack:
        topics: dict[str, str] = {}

        def prepare(system: System) -> None:
            keep_internal_topics(system, "os")
            topics[system.name] = stack.enter_context(bench.topic(system, partitions=PARTITIONS))
            for protocol in PROTOCOLS:
                _warm_up(bench, system, topics[system.name], protocol)

        able = bench.prepared(systems, prepare)
        for protocol, words in PROTOCOLS.items():
            for members in MEMBERS[:2] if bench.plan.quick else MEMBERS:
                case = f"{words}, {members} member{'s' if members > 1 else ''}"
                _case(bench, case, able, topics, protocol, members)


def _case(
    bench: Bench,
    case: str,
    systems: Sequence[System],
    topics: dict[str, str],
    protocol: str,
    members: int,
) -> None:
    def measure(system: System) -> Sample:
        done = _rebalance(bench, system, topics[system.name], protocol, members)
        rebalances = 2 * done.client.messages
        values = [done.client.latency_us("p50") / 1000]
        if members > 1:
            values.append(done.client.latency_us("leaving_p50") / 1000)
        return Sample((*values, done.broker.cpu_s * 1000 / rebalances), "", done.client.command)

    bench.alternate(case, _MANY if members > 1 else _ALONE, systems, measure, rounds=bench.plan.few_rounds)


def _warm_up(bench: Bench, system: System, topic: str, protocol: str) -> None:
    what = f"{system.name}: {PROTOCOLS[protocol]}, rebalances"
    bench.warm_up_to(what, lambda: _rebalance(bench, system, topic, protocol, 10))


def _rebalance(bench: Bench, system: System, topic: str, protocol: str, members: int) -> Measured:
    flags: dict[str, Any] = {"members": members, "partitions": PARTITIONS, "protocol": protocol}
    # A group of its own: members that are gone without a word stay in theirs until their sessions end.
    group = f"members-{uuid.uuid4()}"
    return bench.load(system, "members", topic, group=group, seconds=bench.plan.seconds / 2, **flags)

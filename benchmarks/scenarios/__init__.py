"""The scenarios by name, in the order in which a run takes them."""

from __future__ import annotations

from benchmarks.scenario import Scenario
from benchmarks.scenarios import (
    backfill,
    commits,
    fanout,
    groups,
    latency,
    memory,
    partitions,
    rebalances,
    secure,
    start,
    throughput,
    transactions,
    workers,
)

SCENARIOS = (
    Scenario("produce", "Produce throughput and broker CPU", throughput.produce, 40),
    Scenario("consume", "Consume throughput and broker CPU", throughput.consume, 22),
    Scenario("sync", "Latency of one message at a time", latency.sync, 25),
    Scenario("requests", "One-message requests, pipelined", latency.requests, 8),
    Scenario("fanout", "Fan-out: many readers of one topic", fanout.fanout, 18),
    Scenario("backfill", "Producer latency while another reader back-fills cold data", backfill.backfill, 35),
    Scenario("java", "Kafka's own performance tools as the client", throughput.java, 28),
    Scenario("groups", "Rebalances without waits: the broker's share", groups.groups, 22),
    Scenario("commits", "Commits of positions", commits.commits, 12),
    Scenario("transactions", "Transactions", transactions.transactions, 16),
    Scenario("committed", "From a transaction to a read_committed consumer", transactions.committed, 10),
    Scenario("workers", "Two workers on one machine beside one broker", workers.workers, 25),
    Scenario("start", "From process start to the first acknowledgement", start.start, 20, own_brokers=True),
    Scenario("partitions", "Thousands of partitions", partitions.partitions, 40, own_brokers=True),
    Scenario("memory", "Resident memory", memory.memory, 35, own_brokers=True),
    Scenario("secure", "TLS and log-ins", secure.secure, 60, own_brokers=True),
    Scenario("rebalances", "Rebalances as shipped: real consumers", rebalances.rebalances, 40, own_brokers=True),
)

"""Checks that no waiter, timer or work is left after a quiet time."""

from simulation.world.broken import InvariantBroken
from simulation.world.links import CLIENTS
from simulation.world.machine import Machine
from simulation.world.world import World

MOST_TIMERS = 13
"""The most timers of the node itself: acks, sweeps, checkpoints, positions, compaction, the removal of moved logs, each
a few at most."""

TIMERS_OF_A_FOLLOWER = 1
"""Another broker always has one fetch that waits, and the fetch has a deadline."""


def check_at_rest(world: World) -> None:
    for machine in world.machines:
        _check_at_rest(machine)


def _check_at_rest(machine: Machine) -> None:
    node, life = machine.node, machine.life
    assert life is not None
    groups, transactions = node.groups.shards.log._shards, node.transactions.log._shards
    # Followers always have a fetch that waits for records.
    brokers = {each.connection_id for each in machine.network.connections if each.source != CLIENTS}
    waiting = {
        "parked fetches": {each: parked for each, parked in node.parked.by_connection.items() if each not in brokers},
        "partitions with acks": node.acks._partitions,
        "dirty partitions": node.flushes.dirty,
        "moves between directories": node.log_moves.under_way,
        "acks that wait for the disk": [each.name for each in node.hosted if each.waits.durable],
        "acks that wait for the high watermark": [each.name for each in node.hosted if each.waits.committed],
        "partitions whose visible end is not durable": [
            each.name
            for each in node.hosted
            if each.opened is not None
            and each.settings.acks_mean_disk
            and each.opened.offsets.durable_end < each.opened.offsets.end
        ],
        "readers that wait": [each.name for each in node.hosted if each.waits.readers],
        "requests that wait for the metadata": node.catching_up._waiting,
        "requests that wait for __consumer_offsets": node.groups.shards.log._waiting_for_topic,
        "requests that wait for positions to load": [each.partition.name for each in groups.values() if each.waiting],
        "shards that wait to forget a deleted topic": [
            each.partition.name for each in groups.values() if each.deleted_topics
        ],
        "requests that wait for __transaction_state": node.transactions.log._waiting_for_topic,
        "decisions that wait for their markers": [
            slot for each in transactions.values() for slot in each.waiting_decisions
        ],
        "transactional batches that wait for their coordinator": node.transactional_appends._queues,
        "transactions that wait for their markers": [
            name for each in transactions.values() for name in each.completing
        ],
        "transactions that are to be tried again": [each.pauses_ms for each in transactions.values() if each.pauses_ms],
        "requests that wait for producer ids": node.producer_ids._waiting,
        "work in threads": life.workers.jobs,
        "calls to the store": life.store.calls,
        "flush rounds": life.flusher.steps(),
    }
    for what, found in waiting.items():
        if found:
            raise InvariantBroken(f"after a quiet time there are still {what}: {found}")
    # A cancelled timer stays in the heap until its deadline: fetches that were answered early leave some.
    timers = [timer.callback for _, _, timer in node.loop.timers._heap if timer.callback is not None]
    if len(timers) > MOST_TIMERS + TIMERS_OF_A_FOLLOWER * len(brokers):
        raise InvariantBroken(f"after a quiet time there are {len(timers)} timers: {timers}")
    slots = node.settings.max_incremental_fetch_session_cache_slots
    if len(node.fetch_sessions) > slots:
        raise InvariantBroken(f"there are {len(node.fetch_sessions)} fetch sessions, {slots} are allowed")

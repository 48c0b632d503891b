"""Checks that readers see of each micro-batch exactly the records that one decision named, or none.

The history checker judges each attempt at a part as one transaction; a decision names attempts of several writers.
"""

from collections import defaultdict

from cordwood.records.records import records_in
from cordwood.wire.apis import ApiKey
from simulation.checkers.committed_reads import check_history
from simulation.checkers.content import read_batches
from simulation.workloads.micro_batches import Decision, Query
from simulation.workloads.transactional_writers import TOPIC
from simulation.world.broken import InvariantBroken
from simulation.world.exchange import Exchange
from simulation.world.stage import Stage
from simulation.world.world import World


def check_micro_batches(stage: Stage, query: Query, *, at_the_end: bool) -> None:
    seen: dict[int, list[bytes]] = defaultdict(list)
    for value in check_history(stage, at_the_end=at_the_end):
        seen[int(value.split(b":")[0])].append(value)
    by_batch: dict[int, list[Decision]] = defaultdict(list)
    for decision in query.decisions:
        by_batch[decision.batch_id].append(decision)
    for batch_id in sorted({*seen, *by_batch}):
        _check_batch(batch_id, sorted(seen[batch_id]), by_batch[batch_id], query, at_the_end)


def _check_batch(batch_id: int, seen: list[bytes], decisions: list[Decision], query: Query, at_the_end: bool) -> None:
    named = [sorted(decision.winning) for decision in decisions if decision.could_be_first]
    committed = [sorted(decision.winning) for decision in decisions if decision.committed]
    if len(committed) > 1:
        raise InvariantBroken(f"batch {batch_id} was committed {len(committed)} times")
    if committed and seen != committed[0]:
        raise InvariantBroken(f"batch {batch_id}: readers see {seen} after {committed[0]} was committed")
    finished = batch_id <= query.finished_batch_id
    if finished and seen not in named:
        raise InvariantBroken(f"batch {batch_id} is finished, and readers see {seen}, not one of {named}")
    if at_the_end and seen and seen not in named:
        raise InvariantBroken(f"batch {batch_id} is torn: readers see {seen}, not one of {named}")
    if not set(seen) <= {text for texts in named for text in texts}:
        raise InvariantBroken(f"batch {batch_id}: readers see {seen}, which nobody has asked to commit")


def check_answer(world: World, query: Query, exchange: Exchange) -> None:
    """Checks that the whole batch is readable at the moment when its commit is answered."""
    if exchange.key is not ApiKey.FAMILY_DECIDE or not exchange.values["commit"]:
        return
    if exchange.answer.error_code or exchange.answer.already_decided:
        return
    (decision,) = [each for each in query.decisions if each.values is exchange.values]
    # The check's reads are not the broker's, so the process does not die at them.
    readable = set()
    for machine in world.running:
        armed, machine.disk.die_at = machine.disk.die_at, None
        readable |= {
            record.value
            for partition in machine.node.hosted.led(TOPIC)
            for header, batch in read_batches(partition.replica.log)
            if header.last_offset < partition.replica.last_stable_offset and not header.control
            for record in records_in(batch)
        }
        machine.disk.die_at = armed
    missing = set(decision.winning) - readable
    if missing:
        raise InvariantBroken(f"the commit of batch {decision.batch_id} is answered, and nobody can read {missing} yet")

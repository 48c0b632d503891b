"""Spreads partitions over workers: a pure function of their present places."""

from collections.abc import Mapping, Sequence

from cordwood.model.identifiers import TopicPartition


def plan_moves(placed: Mapping[TopicPartition, int], workers: Sequence[int]) -> dict[TopicPartition, int]:
    """The partitions that get another worker, and that worker. `placed` has the present worker of each partition.

    The numbers of partitions of one topic differ by at most one between workers, and so do the numbers of all
    partitions. Within these bounds a partition stays at its place.
    """
    assert workers, "partitions need a worker"
    topics: dict[str, list[TopicPartition]] = {}
    for partition in sorted(placed):
        topics.setdefault(partition.topic, []).append(partition)
    totals = dict.fromkeys(sorted(workers), 0)
    moves: dict[TopicPartition, int] = {}
    for partitions in topics.values():
        held: dict[int, list[TopicPartition]] = {worker: [] for worker in totals}
        homeless: list[TopicPartition] = []
        for partition in partitions:
            held.get(placed[partition], homeless).append(partition)
        share, rest = divmod(len(partitions), len(totals))
        # Workers with the fewest partitions take one more of this topic; among equals those that have more of the
        # topic.
        order = sorted(totals, key=lambda worker: (totals[worker], -len(held[worker]), worker))
        shares = {worker: share + (place < rest) for place, worker in enumerate(order)}
        for worker in totals:
            homeless += held[worker][shares[worker] :]
            totals[worker] += shares[worker]
        homeless.sort()
        for worker in order:
            for _ in range(shares[worker] - len(held[worker])):
                moves[homeless.pop(0)] = worker
        assert not homeless
    return moves

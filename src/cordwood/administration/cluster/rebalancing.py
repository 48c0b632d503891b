"""The plan that evens out the brokers of a cluster, and the traffic that the plan weighs."""

import dataclasses
import time

from cordwood.administration.cluster.gathering import ABSENT, Gathered, gather
from cordwood.administration.connection import Connection
from cordwood.cluster.planner.balance import PlannedMove
from cordwood.cluster.planner.rebalancing.plan import plan_rebalance


def with_traffic(connection: Connection, gathered: Gathered, sample_s: float) -> Gathered:
    """The partitions with the bytes a second by which their logs grow, watched for `sample_s`. Raises Failure."""
    time.sleep(sample_s)
    later = {each.key: each.size_bytes for each in gather(connection).partitions}
    grown = ((each, later.get(each.key, each.size_bytes) - each.size_bytes) for each in gathered.partitions)
    partitions = tuple(each._replace(traffic=max(0, more) / sample_s) for each, more in grown)
    return dataclasses.replace(gathered, partitions=partitions)


def absent_in_words(gathered: Gathered) -> list[str]:
    """A text about each node that does not run: the plan leaves its replicas there."""
    return [
        f"node {node} does not run, and keeps its replicas: `cordwood cluster drain {node}` moves them"
        for node, state in gathered.states.items()
        if state == ABSENT
    ]


def plan_of(gathered: Gathered) -> list[PlannedMove]:
    return list(plan_rebalance(gathered.movable, gathered.racks))

"""The troubles of a cluster's partitions, by cause: a dead broker is one line a topic, not one a partition."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cordwood.administration.cluster.view import ReplicaState, Trouble, accept_loss_command


class Cause(NamedTuple):
    """Partitions of a topic that are in the same trouble for the same reason."""

    topic: str
    partitions: tuple[int, ...]
    trouble: str
    not_in_sync: str


def by_cause(troubles: Iterable[Trouble]) -> list[Cause]:
    """The causes: partitions without a leader come first, then those that refuse acks=all; topics of users come before
    the cluster's own topics. Only the first causes are shown, and the cluster's own topics would hide the others."""
    alike: dict[tuple[object, ...], list[Trouble]] = {}
    for each in troubles:
        reasons = frozenset((replica.node_id, replica.reason) for replica in each.missing)
        alike.setdefault((each.partition.topic, _trouble(each), reasons), []).append(each)
    ranked = sorted(alike.values(), key=_rank)
    return [_cause(found) for found in ranked]


def _rank(found: Sequence[Trouble]) -> tuple[bool, bool, bool]:
    first = found[0]
    return not first.offline, not first.below_min_in_sync, first.partition.topic.startswith("__")


def _cause(found: Sequence[Trouble]) -> Cause:
    first = found[0]
    behind: dict[ReplicaState, list[int]] = {}
    for each in found:
        for replica in each.missing:
            behind.setdefault(replica._replace(lag=None), []).append(replica.lag or 0)
    return Cause(
        first.partition.topic,
        tuple(sorted(each.partition.partition for each in found)),
        first.in_words if len(found) == 1 else _trouble(first),
        "; ".join(_replica(replica, lags) for replica, lags in sorted(behind.items())),
    )


def _replica(replica: ReplicaState, lags: Sequence[int]) -> str:
    if len(set(lags)) == 1:
        return str(replica._replace(lag=lags[0]))
    return f"{replica.node_id} ({replica.reason}, up to {max(lags)} behind)"


def _trouble(trouble: Trouble) -> str:
    """The trouble in words that fit other partitions of the topic, too."""
    topic, partition = trouble.partition.topic, trouble.partition.partition
    return trouble.in_words.replace(accept_loss_command(topic, partition), accept_loss_command(topic, "PARTITION..."))

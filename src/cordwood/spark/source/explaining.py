"""Explains a loss: the offsets, since when they are gone, the topic's retention, and what to do now."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Final

from cordwood.client.answers import Isolation
from cordwood.client.cluster import Cluster
from cordwood.client.errors import ClientError
from cordwood.spark.options.names import FAIL_ON_DATA_LOSS
from cordwood.spark.source.data_loss import Cause, Loss

_TOLD: Final = 10
"""The number of losses that are told in full."""

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))

_ADVICE = {
    Cause.REMOVED: "Keep records longer (retention.ms, retention.bytes) or read sooner; `cordwood group watch` shows"
    " the time that is left before data is lost.",
    Cause.STARTS_LATE: "Keep records longer (retention.ms, retention.bytes) or read sooner.",
    Cause.RECREATED: "Positions of the old topic mean nothing in the new one: begin with a new checkpoint.",
    Cause.ENDS_EARLIER: "If the topic was created again, begin with a new checkpoint.",
    Cause.TOPIC_GONE: "If that was meant, begin with a new checkpoint, or remove the topic from the query.",
    Cause.NOT_SUBSCRIBED: "Subscribe to it again, or begin with a new checkpoint.",
}


def explain(cluster: Cluster, losses: Sequence[Loss], now_ms: int) -> str:
    """The losses, with the reasons that the cluster tells. Never fails: a loss is reported in any case."""
    lines = []
    settings: dict[str, Mapping[str, str]] = {}
    for loss in losses[:_TOLD]:
        topic = loss.partition.topic
        line = f"{loss}."
        if loss.cause in (Cause.REMOVED, Cause.STARTS_LATE):
            try:
                if topic not in settings:
                    settings[topic] = cluster.describe_configs(topic)
                line += _first_left(cluster, loss, now_ms) + _retention(settings[topic])
            except ClientError as failure:
                line += f" The reason could not be asked for: {failure}."
        lines.append(line)
    if len(losses) > _TOLD:
        rest = losses[_TOLD:]
        lines.append(f"And {len(rest)} more partitions with {sum(loss.count for loss in rest)} lost offsets.")
    return "\n".join(lines)


def advise(losses: Sequence[Loss]) -> str:
    advice = dict.fromkeys(_ADVICE[loss.cause] for loss in losses)
    return "\n".join([*advice, f"To go on without these records, set {FAIL_ON_DATA_LOSS}=false."])


def _first_left(cluster: Cluster, loss: Loss, now_ms: int) -> str:
    # The first record that is not from before 1970 is the first one.
    found = cluster.list_offsets({loss.partition: 0}, Isolation.READ_UNCOMMITTED).get(loss.partition)
    if found is None or found.offset < 0:
        return " No record is left in it."
    when = _moment(found.timestamp_ms)
    age = f", {duration(now_ms - found.timestamp_ms)} ago" if now_ms > found.timestamp_ms else ""
    return f" The first record that is left has offset {found.offset} and is of {when}{age}."


def _moment(timestamp_ms: int) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (OverflowError, ValueError):  # a producer that counts microseconds writes times of the year 50000
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds")


def _retention(settings: Mapping[str, str]) -> str:
    policy = settings.get("cleanup.policy", "delete")
    time_ms = _limit(settings.get("retention.ms"))
    size_bytes = _limit(settings.get("retention.bytes"))
    if "delete" not in policy:
        return (
            f" The topic has cleanup.policy={policy}, so retention takes nothing: records were deleted (DeleteRecords)."
        )
    if time_ms is None and size_bytes is None:
        return (
            " The topic has no limit in time or size, so retention takes nothing: records were deleted (DeleteRecords)."
        )
    limits = []
    if time_ms is not None:
        limits.append(f"for {duration(time_ms)} (retention.ms={time_ms})")
    if size_bytes is not None:
        limits.append(f"up to {size_bytes} bytes in a partition (retention.bytes={size_bytes})")
    return f" The topic keeps records {' and '.join(limits)}."


def _limit(text: str | None) -> int | None:
    if text is None or not text.lstrip("-").isdecimal() or int(text) < 0:
        return None
    return int(text)


def duration(milliseconds: int) -> str:
    for unit_ms, unit in _UNITS:
        if milliseconds >= unit_ms:
            return f"{milliseconds / unit_ms:.3g} {unit}"
    return f"{milliseconds} ms"

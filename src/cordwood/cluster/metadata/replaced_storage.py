"""Warnings about a broker that takes part with another data directory than before: its disk was replaced or emptied, or
it is not mounted. The records of the former directory are missing, so an operator has to know."""

from cordwood.cluster.metadata.image import ClusterImage

NAMED = 20
"""The most partitions that one line names."""


def told_by_broker(image: ClusterImage, storage_id: str) -> str | None:
    """The warning of a broker at its start; None: the cluster knows its directory, or knew none before."""
    broker_id = image.node_id
    before = image.storage_ids.get(broker_id, "")
    if before in ("", storage_id):
        return None
    own = [
        (f"{topic.name}-{index}", {*partition.isr, *partition.elr})
        for topic in image.sorted_topics()
        for index, partition in enumerate(topic.partitions)
        if broker_id in partition.replicas
    ]
    alone = [name for name, complete in own if complete == {broker_id}]
    return (
        f"the data directory is new: broker {broker_id} had another before (storage id {before}, now {storage_id}). If "
        f"its disk is not mounted, stop the broker and mount it. {len(own)} partitions are filled anew from other "
        f"brokers as far as these have them{_lost(alone)}"
    )


def told_by_controller(image: ClusterImage, broker_id: int) -> str | None:
    """The warning of the controller when it lifts the fence of a broker; None: the broker has its former directory."""
    before, now = image.storage_ids.get(broker_id, ""), image.brokers[broker_id].storage_id
    if before in ("", now):
        return None
    waiting = [
        f"{topic.name}-{index}"
        for topic in image.sorted_topics()
        for index, partition in enumerate(topic.partitions)
        if (broker_id, before) in partition.former_storage
    ]
    return (
        f"broker {broker_id} takes part with another data directory than before (storage id {before}, now {now}): its "
        f"disk was replaced or emptied, or is not mounted{_lost(waiting)}"
    )


def _lost(names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return (
        f"; no replica is left that has every record of {', '.join(names[:NAMED])}{more}: start the broker on the disk "
        "that it had, or accept their loss (`cordwood cluster accept-loss`)"
    )

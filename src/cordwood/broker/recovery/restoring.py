"""Puts topics back: renames their directories to the names of partitions, and adds the topics to the metadata."""

import asyncio
import os
from dataclasses import asdict
from typing import Any

from cordwood.broker.machine import clocks
from cordwood.broker.recovery.lost_topics import (
    Rebuilt,
    SetAsideTopic,
    chosen_topics,
    rebuilt_topic,
    target,
    topics_set_aside,
)
from cordwood.broker.recovery.merging import merge_topic
from cordwood.broker.recovery.offline import taken
from cordwood.broker.storage.storage import METADATA_FILE, refuse_part_of_cluster
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import TOPIC_NAMES
from cordwood.cluster.planner.put_back import LostTopic, plan_put_back
from cordwood.cluster.planner.store_transactions import Plan
from cordwood.cluster.stores.interface import MetadataStore
from cordwood.cluster.stores.sqlite import SqliteStore
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.inspection.directory import DataDirectoryView, read_data_directory
from cordwood.model.errors import ProtocolError, StorageFailure
from cordwood.model.failure import Failure
from cordwood.model.identifiers import INTERNAL_TOPICS
from cordwood.model.moment import Moment
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.partition_metadata import topic_id_text


def put_topics_back(
    directory: str,
    names: list[str],
    *,
    everything: bool,
    new_name: str | None,
    partition_count: int | None,
    dry_run: bool,
) -> list[dict[str, Any]]:
    """Takes the directory of a stopped broker without a cluster, and puts topics back, as `restore` does. Raises
    Failure."""
    with taken(directory) as held:
        try:
            refuse_part_of_cluster(held)
        except StorageFailure as refusal:
            raise Failure(
                "PART_OF_CLUSTER",
                str(refusal).partition(". ")[0],
                "to read what is set aside, copy it into the directory of a broker without a cluster, and put it back "
                "there: docs/operations/lost-metadata.md has the commands",
            ) from refusal
        return asyncio.run(
            restore(
                held,
                names,
                everything=everything,
                new_name=new_name,
                partition_count=partition_count,
                now=clocks.now(),
                dry_run=dry_run,
            )
        )


async def restore(
    held: DataDirectory,
    names: list[str],
    *,
    everything: bool,
    new_name: str | None,
    partition_count: int | None = None,
    now: Moment,
    dry_run: bool = False,
) -> list[dict[str, Any]]:
    """Puts topics back, and describes each. Raises Failure before the first change. With `dry_run` it ends before the
    first change, and only names the topics and partitions."""
    path = held.path
    data = read_data_directory(path)
    chosen = chosen_topics(topics_set_aside(data), names, everything=everything)
    for option, given in (("--as", new_name), ("--partitions", partition_count)):
        if given is not None and len(chosen) != 1:
            raise Failure("USAGE", f"{option} is for one topic", "put the others back one by one")
    identity = held.identity()
    assert identity is not None
    settings = BrokerSettings.from_texts({"node.id": str(identity.node_id)})
    store = await SqliteStore.open(f"{path}/{METADATA_FILE}")
    try:
        image = ClusterImage(identity.node_id, settings)
        image.load(await store.list(""))
        replaced = [topic for topic in chosen if new_name is None and _came_into_use_since(image, topic)]
        planned = [
            (topic, _rebuilt(image, data, topic, new_name, settings, partition_count))
            for topic in chosen
            if topic not in replaced
        ]
        for topic, rebuilt in planned:
            _plan(image, data, topic, rebuilt.topic)
        _check_names([rebuilt.topic for _, rebuilt in planned])
        if dry_run:
            named = [(rebuilt.topic.name, topic) for topic, rebuilt in planned] + [
                (each.name, each) for each in replaced
            ]
            return [
                {"topic": name, "partitions": sorted(read.partition.partition for read in topic.partitions)}
                for name, topic in named
            ]
        restored = [_merged(held, image, topic, now) for topic in replaced]
        for topic, rebuilt in planned:
            lost = rebuilt.topic
            plan = _plan(image, data, topic, lost)
            _rename(held.filesystem, path, topic, lost.name)
            if plan is not None:
                await carry_out(store, plan)
                image.load(await store.list(""))
            created = plan is not None and _creates(plan)
            restored.append(
                {
                    "topic": lost.name,
                    "topic_id": topic_id_text(lost.topic_id),
                    "partitions": sorted(read.partition.partition for read in topic.partitions),
                    "partition_count": len(image.topics[lost.name].partitions),
                    "partition_count_known": not created or rebuilt.count_is_known,
                    "settings": dict(lost.overrides) if created else {},
                    "retention_before": dict(rebuilt.retention) if created else {},
                    "merged": None,
                }
            )
        return restored
    finally:
        await store.close()


def _came_into_use_since(image: ClusterImage, topic: SetAsideTopic) -> bool:
    """True if the broker has another internal topic of this name by now."""
    return topic.name in INTERNAL_TOPICS and topic.name in image.topics and topic.topic_id not in image.topics_by_id


def _merged(held: DataDirectory, image: ClusterImage, topic: SetAsideTopic, now: Moment) -> dict[str, Any]:
    in_use = image.topics[topic.name]
    merge = merge_topic(held, image, in_use, topic.partitions, now)
    return {
        "topic": in_use.name,
        "topic_id": topic_id_text(in_use.topic_id),
        "partitions": sorted(read.partition.partition for read in topic.partitions),
        "partition_count": len(in_use.partitions),
        "partition_count_known": True,
        "settings": {},
        "retention_before": {},
        "merged": asdict(merge),
    }


def _check_names(topics: list[LostTopic]) -> None:
    names = [topic.name for topic in topics]
    for name in names:
        if names.count(name) > 1:
            raise Failure(
                "AMBIGUOUS",
                f"several topics of the name {name} are set aside, one after the other",
                "put them back one by one, the last one first: name its directories (`cordwood recover list`)",
            )


def _rebuilt(
    image: ClusterImage,
    data: DataDirectoryView,
    topic: SetAsideTopic,
    new_name: str | None,
    settings: BrokerSettings,
    partition_count: int | None,
) -> Rebuilt:
    known = None if topic.topic_id is None else image.topics_by_id.get(topic.topic_id)
    name = new_name or (topic.name if known is None else known.name)
    in_place = [
        read
        for read in data.partitions
        if read.partition.topic == name and read.topic_id is not None and read.topic_id == topic.topic_id
    ]
    return rebuilt_topic(topic, name, in_place, settings, partition_count)


def _plan(image: ClusterImage, data: DataDirectoryView, topic: SetAsideTopic, lost: LostTopic) -> Plan | None:
    """The plan; None if the metadata knows the topic already. Raises Failure if something else has the topic's name."""
    known = image.topics_by_id.get(lost.topic_id)
    for each in [str(target(read, lost.name)) for read in topic.partitions]:
        if os.path.exists(os.path.join(data.path, each)):
            raise Failure(
                "NAME_TAKEN",
                f"{each} is there already, with records of its own",
                f"put {topic.name} back under another name with --as" if known is None else "",
            )
    try:
        return plan_put_back(image, lost)
    except ProtocolError as refusal:
        raise Failure(
            refusal.code.name, refusal.message, f"put {topic.name} back under another name with --as"
        ) from None


def _creates(plan: Plan) -> bool:
    """True if the plan creates the topic, and does not only add partitions to it."""
    return any(operation[0].startswith(TOPIC_NAMES) for operation in plan.commit.operations)


def _rename(filesystem: Filesystem, path: str, topic: SetAsideTopic, name: str) -> None:
    for read in topic.partitions:
        filesystem.rename(read.directory, f"{path}/{target(read, name)}")
    filesystem.sync_directory(path)


async def carry_out(store: MetadataStore, plan: Plan) -> None:
    for transaction in plan.in_order():
        if not (await store.txn(*transaction)).succeeded:
            raise Failure("CONFLICT", "the metadata changed meanwhile", "try again")

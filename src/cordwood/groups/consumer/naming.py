"""Shares by the names of topics, as members of the classic protocol see them. A group itself knows topics by id."""

from collections.abc import Iterable, Sequence

from cordwood.groups.classic.subscription import NamedPartitions
from cordwood.groups.consumer.partition_sets import NOTHING, Share, mask_of, numbers_in
from cordwood.groups.consumer.topics import TopicView


def share_named(partitions: NamedPartitions, topics: TopicView) -> Share:
    """Drops topics that no longer exist from a share."""
    masks: dict[int, int] = {}
    for name, numbers in partitions:
        shape = topics.shape_of(name)
        there = [] if shape is None else [number for number in numbers if 0 <= number < shape.partitions]
        if shape is not None and there:
            masks[shape.topic_id.int] = masks.get(shape.topic_id.int, 0) | mask_of(there)
    return Share(masks) if masks else NOTHING


def named(share: Share, names: Iterable[str], topics: TopicView) -> list[tuple[str, Sequence[int]]]:
    """The part of a share that is in topics of these names."""
    shapes = [(name, topics.shape_of(name)) for name in sorted(names)]
    return [
        (name, numbers_in(share.masks[shape.topic_id.int]))
        for name, shape in shapes
        if shape is not None and shape.topic_id.int in share.masks
    ]

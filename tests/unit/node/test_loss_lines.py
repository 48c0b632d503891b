"""Lines about losses of groups: few, however many groups and partitions lose records."""

import logging

import pytest

from cordwood.model.identifiers import TopicPartition
from cordwood.node.duties.loss_lines import GROUPS_NAMED, SAID_EVERY_MS, LossLines


def add(lines: LossLines, group: str, partition: int, lost: int = 1) -> None:
    name = TopicPartition("t", partition)
    lines.add(group, name, lost, f"group {group} has lost {lost} records of {name}")


def test_a_group_with_thousands_of_partitions_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "cordwood.lag")
    lines = LossLines()
    for partition in range(6000):
        add(lines, "readers", partition, lost=9 if partition == 1 else 5)
    lines.say(0)
    assert caplog.messages == [
        "group readers has lost 9 records of t-1. The same holds for 5999 more partitions of this group: "
        "t-0, t-2, t-3, ..."
    ]


def test_two_partitions_are_both_named_and_one_needs_no_count(caplog: pytest.LogCaptureFixture) -> None:
    lines = LossLines()
    for group, partition in (("one", 0), ("two", 0), ("two", 1)):
        add(lines, group, partition)
    lines.say(0)
    assert caplog.messages == [
        "group one has lost 1 records of t-0",
        "group two has lost 1 records of t-0. The same holds for 1 more partitions of this group: t-1",
    ]


def test_thousands_of_groups_have_a_few_lines_a_second_and_none_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    lines = LossLines()
    for number in range(2000):
        add(lines, f"group-{number}", 0)
    lines.say(5_000)
    assert len(caplog.messages) == GROUPS_NAMED + 1
    assert caplog.messages[-1].startswith(f"the same holds for {2000 - GROUPS_NAMED} more groups, in ")
    caplog.clear()
    add(lines, "late", 0)
    lines.say(5_000 + SAID_EVERY_MS - 1)
    assert not caplog.messages
    lines.say(5_000 + SAID_EVERY_MS)
    assert caplog.messages == ["group late has lost 1 records of t-0"]

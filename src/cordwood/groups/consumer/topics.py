"""The topics as groups see them: existing topics, and the matches of regular expressions."""

from typing import NamedTuple, Protocol

from cordwood.groups.consumer.records import Resolution
from cordwood.model.identifiers import TopicId


class TopicShape(NamedTuple):
    topic_id: TopicId
    partitions: int


class TopicView(Protocol):
    """The port through which group state machines see topics."""

    @property
    def version(self) -> tuple[int, int]:
        """A version that changes whenever an answer of this view may change."""

    def shape_of(self, name: str) -> TopicShape | None:
        """A topic's id and partitions, or None if there is no such topic."""

    def matching(self, expression: str) -> Resolution | None:
        """The topics that the expression matches; None if that was not computed, and the earlier matches still hold."""


class NoTopics:
    """A cluster without topics."""

    version = (0, 0)

    def shape_of(self, name: str) -> TopicShape | None:
        return None

    def matching(self, expression: str) -> Resolution | None:
        return None

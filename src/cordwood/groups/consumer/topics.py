"""The topics as groups see them: existing topics, and the matches of regular expressions."""

from typing import NamedTuple, Protocol

from cordwood.groups.consumer.records import Resolution
from cordwood.model.identifiers import TopicId


class TopicShape(NamedTuple):
    topic_id: TopicId
    partitions: int


class Reader(NamedTuple):
    """The one that reads topics for a member, where the broker asks for rights: an expression matches only topics that
    its reader may describe."""

    principal: tuple[str, str, tuple[str, ...]]
    """Kind and name, and the groups whose rules hold for it, too."""
    host: str


class Subscribed(NamedTuple):
    """A regular expression of a member, and the member's reader."""

    expression: str
    reader: Reader | None
    """None: the broker asks nobody for rights, or the member has sent no heartbeat to this coordinator yet."""


class TopicView(Protocol):
    """The port through which group state machines see topics."""

    @property
    def version(self) -> tuple[int, int]:
        """A version that changes whenever an answer of this view may change."""

    def shape_of(self, name: str) -> TopicShape | None:
        """A topic's id and partitions, or None if there is no such topic."""

    def matching(self, subscribed: Subscribed) -> Resolution | None:
        """The topics that the expression matches, among those that the reader may describe; None if that was not
        computed, and the earlier matches still hold."""


class NoTopics:
    """A cluster without topics."""

    version = (0, 0)

    def shape_of(self, name: str) -> TopicShape | None:
        return None

    def matching(self, subscribed: Subscribed) -> Resolution | None:
        return None

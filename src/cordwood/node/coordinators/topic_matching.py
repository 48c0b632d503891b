"""Matches the regular expressions of groups against the topics, and keeps the matches up to date.

Where the broker asks for rights, the matches are narrowed for each reader (`VisibleMatches`).

Matching is done in a thread, one piece of work at a time: a new expression against all topics, or new topics against
all expressions. A request with an expression that is not matched yet waits. The kept matches are bounded: the
expressions used longest ago are forgotten, and matched again at their next use.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.groups.consumer.records import Resolution
from cordwood.groups.consumer.topics import Subscribed, TopicShape
from cordwood.model.errors import ProtocolError
from cordwood.model.identifiers import INTERNAL_TOPICS
from cordwood.node.coordinators.regular_expressions import names_matching
from cordwood.node.coordinators.visible_matches import TopicRights, VisibleMatches
from cordwood.node.loop.loop import Loop

MAX_EXPRESSIONS = 10_000
"""If more expressions are in use at a time, heartbeats match them again and again."""

Known = Callable[[ProtocolError | None], None]


class _Work(NamedTuple):
    """One piece of work for the thread, with copies of its inputs."""

    version: int
    wall_ms: int
    names: frozenset[str]
    """Names of all topics."""
    added: frozenset[str]
    asked: tuple[str, ...]
    """New expressions, to be matched against all topics."""
    known: dict[str, Resolution]
    """Known expressions, if topics were created or deleted."""


_Found = dict[str, Resolution | ProtocolError]


class TopicMatching:
    """The topics as groups see them (`TopicView`)."""

    def __init__(self, loop: Loop, image: ClusterImage, rights: TopicRights) -> None:
        self._loop = loop
        self._image = image
        self._rights = rights
        self._visible = VisibleMatches(loop, rights)
        self._known: OrderedDict[str, Resolution] = OrderedDict()
        """Matches by expression, the expression used longest ago first."""
        self._waiting: dict[str, list[Known]] = {}
        self._added: set[str] = set()
        self._removed: set[str] = set()
        self._finished = 0
        self._busy = False

    # The view of the groups

    @property
    def version(self) -> tuple[int, int]:
        return self._image.revision, self._finished + self._visible.finished

    def shape_of(self, name: str) -> TopicShape | None:
        topic = self._image.topics.get(name)
        return None if topic is None else TopicShape(topic.topic_id, len(topic.partitions))

    def matching(self, subscribed: Subscribed) -> Resolution | None:
        if subscribed.reader is not None:
            return self._visible.of(subscribed)
        return None if self._rights.asks else self._known.get(subscribed.expression)

    # Events

    def when_known(
        self, subscriptions: Collection[Subscribed], done: Callable[[dict[str, ProtocolError]], None]
    ) -> None:
        """Calls back when all expressions are matched, with the reasons why some are not regular expressions. The
        matches of a reader fit the rules of this call, or later ones."""

        def matched(refused: dict[str, ProtocolError]) -> None:
            found = {each: self._known.get(each.expression) for each in read}
            self._visible.when_judged(
                {each: whole for each, whole in found.items() if whole is not None}, lambda: done(refused)
            )

        read = [each for each in subscriptions if each.reader is not None]
        self._when_matched({each.expression for each in subscriptions}, matched if read else done)

    def _when_matched(self, expressions: Collection[str], done: Callable[[dict[str, ProtocolError]], None]) -> None:
        refused: dict[str, ProtocolError] = {}
        missing = [expression for expression in expressions if expression not in self._known]
        left = len(missing)
        for expression in expressions:
            if expression in self._known:
                self._known.move_to_end(expression)
        if not missing:
            done(refused)
            return

        def waits_for(expression: str) -> Known:
            def known(refusal: ProtocolError | None) -> None:
                nonlocal left
                if refusal is not None:
                    refused[expression] = refusal
                left -= 1
                if not left:
                    done(refused)

            return known

        for expression in missing:
            self._waiting.setdefault(expression, []).append(waits_for(expression))
        self._go_on()

    def topics_changed(self, created: Collection[str], deleted: Collection[str]) -> None:
        if not self._known and not self._waiting and not self._busy:
            return
        self._removed.update(deleted)
        self._added.difference_update(deleted)
        self._added.update(created)
        self._go_on()

    def _go_on(self) -> None:
        """Begins the next piece of work if the last is done."""
        if self._busy or not (self._waiting or self._added or self._removed):
            return
        image = self._image
        work = _Work(
            image.revision,
            self._loop.now.wall_ms,
            frozenset(image.topics) - INTERNAL_TOPICS,
            frozenset(self._added) - INTERNAL_TOPICS,
            tuple(self._waiting),
            dict(self._known) if self._added or self._removed else {},
        )
        self._added, self._removed = set(), set()
        self._busy = True
        self._loop.effects.blocking(lambda: _matched(work), self._matched)

    def _matched(self, found: _Found | Exception) -> None:
        if isinstance(found, Exception):
            raise found
        self._finished += 1
        answers: list[tuple[Known, ProtocolError | None]] = []
        for expression, result in found.items():
            waiting = self._waiting.pop(expression, [])
            if isinstance(result, ProtocolError):
                answers += [(known, result) for known in waiting]
            elif waiting or expression in self._known:
                self._known[expression] = result
                answers += [(known, None) for known in waiting]
        while len(self._known) > MAX_EXPRESSIONS:
            self._known.popitem(last=False)
        self._busy = False
        for known, refusal in answers:
            known(refusal)
        self._go_on()


def _matched(work: _Work) -> _Found:
    """Does the work in the thread. Known expressions appear in the result only if their topics changed."""
    found: _Found = {}
    for expression in work.asked:
        try:
            topics = frozenset(names_matching(expression, work.names))
        except ProtocolError as refusal:
            found[expression] = refusal
        else:
            found[expression] = Resolution(topics, work.version, work.wall_ms)
    for expression, before in work.known.items():
        topics = (before.topics & work.names).union(names_matching(expression, work.added))
        if topics != before.topics:
            found[expression] = Resolution(topics, work.version, work.wall_ms)
    return found

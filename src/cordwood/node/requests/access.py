"""The one place that judges requests: may this principal do this with that resource?

A handler asks the `Judge` of its request about each resource that the request names, and answers with the refusal that
it gets. The table of rights (`rights.py`) says which questions an API has; a question that the table does not have is a
fault of the handler, and an assertion. Without an authorizer everybody may do everything, but for requests that only
brokers may send (`brokers_only.py`).
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Final

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.versions import SECURITY_ROWS
from cordwood.groups.consumer.topics import Reader
from cordwood.metrics.histogram import Histogram
from cordwood.model.acls import EVERYTHING, THE_CLUSTER
from cordwood.model.errors import ErrorCode, ProtocolError, SettingsTooNew
from cordwood.model.identifiers import TopicId, no_topic_with
from cordwood.model.operations import Operation, ResourceKind, as_bits
from cordwood.model.settings.authorizer_settings import principals_in
from cordwood.node.requests.proven_brokers import is_proven
from cordwood.node.requests.rights import RIGHTS, Right, Without
from cordwood.security.access_rules import AccessRules
from cordwood.security.sessions import THIS_BROKER, Principal, Session
from cordwood.wire.apis import APIS
from cordwood.wire.requests import RequestHeader

if TYPE_CHECKING:
    from cordwood.security.trail.port import Trail

logger = logging.getLogger("cordwood.node")

MOST_TOLD: Final = 1_000
"""The most kinds of refusals that a dry run logs."""

TOPIC: Final = ResourceKind.TOPIC
MOST_JUDGES: Final = 2_000
MOST_ALLOWED: Final = 20
"""The most judges that are kept, and the most questions that each remembers to have allowed: 12 MB, at 300 bytes each.
Further questions are decided by the rules each time."""

BROKERS: Final = Reader(THIS_BROKER, EVERYTHING)
"""A reader that may describe every topic."""


class Access:
    """Finds the judge of each request. Its rules are those of the cluster's image."""

    def __init__(self, image: ClusterImage, trail: Trail | None = None) -> None:
        """`trail`: hears of refusals. Raises SettingsTooNew for an authorizer in a cluster whose brokers may not
        know of rules."""
        settings = image.static_settings
        self._image = image
        self._trail = trail
        self._dry_run = DryRun() if settings.authorizer_dry_run else None
        self._changes_seen = -1
        self._judges: dict[tuple[int, int, int], Asking] = {}
        """By the identity of the session, the API and its version: a client sends the same requests again and again."""
        self.rules: AccessRules | None = None
        """None: there is no authorizer."""
        self.lag = Histogram()
        """How long changes of rules took to get here, by the clocks of the brokers that made them and of this one."""
        self._last_change = image.acls.last_change
        if settings.authorizer_class_name:
            if image.metadata_version < SECURITY_ROWS:
                raise SettingsTooNew(
                    f"authorizer.class.name is set, and the cluster's metadata has version {image.metadata_version}: "
                    f"rules of access need {SECURITY_ROWS}. Start without the setting, and run `cordwood cluster "
                    "upgrade` once all brokers run this release"
                )
            self.rules = AccessRules(
                principals_in(settings.super_users), everyone_without_rules=settings.allow_everyone_if_no_acl_found
            )
            self._take_over()

    def judge(self, header: RequestHeader, session: Session) -> Judge:
        rules = self.rules
        if rules is None or session.principal is THIS_BROKER:
            return EVERYTHING_ALLOWED
        if header.sender is not None and is_proven(self._image, header):
            return EVERYTHING_ALLOWED
        place = (id(session), header.api_key, header.api_version)
        kept = self._judges.get(place)
        # A session that is kept here keeps its identity; another may have had it before.
        if kept is not None and kept.session is session and kept.rules is rules:
            return kept
        if len(self._judges) >= MOST_JUDGES:
            self._judges.clear()
        judge = self._judges[place] = self._new_judge(rules, header, session)
        return judge

    def _new_judge(self, rules: AccessRules, header: RequestHeader, session: Session) -> Asking:
        if self._dry_run is not None:
            return Observing(rules, header.api_key, header.api_version, session, self._trail, self._dry_run)
        return Asking(rules, header.api_key, header.api_version, session, self._trail)

    @property
    def asks(self) -> bool:
        """True if requests without a right are refused."""
        return self.rules is not None and self._dry_run is None

    @property
    def revision(self) -> int:
        return 0 if self.rules is None else self.rules.revision

    def reader(self, header: RequestHeader, session: Session) -> Reader | None:
        """The sender of a request as the reader of topics; None: nobody is asked. Readers at addresses that no rule
        names are one, so that a principal's processes share their matches."""
        if self.rules is None or self._dry_run is not None:
            return None
        if session.principal is THIS_BROKER or is_proven(self._image, header):
            return BROKERS
        return Reader(session.principal, session.host if self.rules.name_host(session.host) else EVERYTHING)

    def may_describe_topic(self, reader: Reader, name: str) -> bool:
        if self.rules is None or reader == BROKERS:
            return True
        who = Principal(*reader.principal)
        return self.rules.decide(who, reader.host, Operation.DESCRIBE, ResourceKind.TOPIC, name).allowed

    def image_changed(self, wall_ms: int) -> None:
        """Takes over the rules of the image if they have changed. `wall_ms`: the time now."""
        self._take_over()
        last_change = self._image.acls.last_change
        if last_change != self._last_change:
            self._last_change = last_change
            self.lag.observe(max(0, wall_ms - last_change.wall_ms) / 1000)

    def _take_over(self) -> None:
        if self.rules is None or self._image.acls.changes == self._changes_seen:
            return
        self._changes_seen = self._image.acls.changes
        before, after = set(self.rules), set(self._image.acls)
        for acl in before - after:
            self.rules.remove(acl)
        for acl in after - before:
            self.rules.add(acl)


class Judge:
    """Answers the questions of one request; this one allows everything, in one call each: every request asks."""

    __slots__ = ()

    asks: bool = False
    """True if there is an authorizer, and the sender of the request is not a proven broker."""
    enforces: bool = False
    """True if its refusals count: a dry run asks, and refuses nothing."""

    @property
    def revision(self) -> int:
        """A judgement holds as long as the revision is the same."""
        return 0

    def may(self, operation: Operation, kind: ResourceKind, name: str = THE_CLUSTER) -> bool:
        return True

    def is_granted(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """True if a rule grants this to the principal. Where nobody asks for rights, or in a dry run, a token would let
        its holder act as somebody else long after rights are asked for: so nobody has it without a rule."""
        return False

    def may_see_topic(self, name: str) -> bool:
        """True if the principal may know that there is such a topic."""
        return True

    def operations(self, kind: ResourceKind, name: str = THE_CLUSTER) -> int:
        """What the principal may do with the resource, as answers tell it."""
        return as_bits(kind.operations)

    def refusal(self, operation: Operation, kind: ResourceKind, name: str = THE_CLUSTER) -> ProtocolError | None:
        """The answer to somebody who may not do this, or None."""
        return None

    def error(self, operation: Operation, kind: ResourceKind, name: str = THE_CLUSTER) -> ErrorCode:
        """The error for somebody who may not do this, or NONE."""
        return ErrorCode.NONE

    def group_error(self, operation: Operation, group_id: str) -> ErrorCode:
        """The error for somebody who may not do this with the group, or NONE. No group has an empty id."""
        return ErrorCode.NONE if group_id else ErrorCode.INVALID_GROUP_ID

    def topic_refusal(self, operation: Operation, name: str, topic_id: TopicId | None) -> ProtocolError | None:
        """The answer to somebody who may not do this with the topic, or None. `topic_id`: the request names the topic
        by its id; somebody who may not see the topic is told that there is none."""
        return None

    def records_refusal(self, operation: Operation, name: str, topic_id: TopicId) -> ProtocolError | None:
        """The answer to somebody who may not do this with the records of a topic, named by its id, or None. It is not
        UNKNOWN_TOPIC_ID: a client whose right was taken away would look for the topic for ever, and say nothing."""
        return None


EVERYTHING_ALLOWED: Final = Judge()


class Asking(Judge):
    """Answers by the rules of the moment. It serves all requests of a session in one version of an API, and remembers
    what it has allowed: nearly every question was asked before. A remembered answer holds for one revision of the
    rules."""

    __slots__ = ("_allowed", "_allowed_at", "_host", "_key", "_principal", "_trail", "_version", "rules", "session")

    asks = True
    enforces = True

    def __init__(self, rules: AccessRules, key: int, version: int, session: Session, trail: Trail | None) -> None:
        self.rules = rules
        self.session = session
        self._key = key
        self._version = version
        self._trail = trail
        self._principal = session.principal
        self._host = session.host
        self._allowed: set[tuple[Operation, ResourceKind, str]] = set()
        self._allowed_at = rules.revision

    @property
    def revision(self) -> int:
        return self.rules.revision

    def may(self, operation: Operation, kind: ResourceKind, name: str = THE_CLUSTER) -> bool:
        if self._allowed_at == self.rules.revision and (operation, kind, name) in self._allowed:
            return True
        right = _right(self._key, self._version, operation, kind)
        if self._allows(operation, kind, name) or any(self._may_instead(*other) for other in right.instead):
            self._remember((operation, kind, name))
            return True
        self._note_refusal(right, name)
        return False

    def _note_refusal(self, right: Right, name: str) -> None:
        if right.without is not Without.LEFT_OUT:
            self.rules.refused[right.operation, right.kind] += 1
            if self._trail is not None:
                api = APIS[self._key].name
                self._trail.refused(self.session, api, right.operation, right.kind, name, enforced=self.enforces)

    def _remember(self, question: tuple[Operation, ResourceKind, str]) -> None:
        if self._allowed_at != self.rules.revision:
            self._allowed.clear()
            self._allowed_at = self.rules.revision
        if len(self._allowed) < MOST_ALLOWED:
            self._allowed.add(question)

    def is_granted(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        if self.rules.grants(self._principal, self._host, operation, kind, name):
            return True
        self._note_refusal(_right(self._key, self._version, operation, kind), name)
        return False

    def may_see_topic(self, name: str) -> bool:
        return self._allows(Operation.DESCRIBE, ResourceKind.TOPIC, name)

    def operations(self, kind: ResourceKind, name: str = THE_CLUSTER) -> int:
        return as_bits(operation for operation in kind.operations if self._allows(operation, kind, name))

    def refusal(self, operation: Operation, kind: ResourceKind, name: str = THE_CLUSTER) -> ProtocolError | None:
        # The look-up of `may` stands here, too: each batch and each fetched partition asks this way.
        if self._allowed_at == self.rules.revision and (operation, kind, name) in self._allowed:
            return None
        if self.may(operation, kind, name):
            return None
        return ProtocolError(kind.refusal, f"The right is missing: {right_of(operation, kind, name)}.")

    def error(self, operation: Operation, kind: ResourceKind, name: str = THE_CLUSTER) -> ErrorCode:
        return ErrorCode.NONE if self.may(operation, kind, name) else kind.refusal

    def group_error(self, operation: Operation, group_id: str) -> ErrorCode:
        return self.error(operation, ResourceKind.GROUP, group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def topic_refusal(self, operation: Operation, name: str, topic_id: TopicId | None) -> ProtocolError | None:
        refusal = self.refusal(operation, TOPIC, name)
        hidden = refusal is not None and topic_id is not None and not self.may_see_topic(name)
        return no_topic_with(topic_id) if hidden else refusal

    def records_refusal(self, operation: Operation, name: str, topic_id: TopicId) -> ProtocolError | None:
        if self.refusal(operation, TOPIC, name) is None:
            return None
        # Whoever has an id may have heard of it when he could see the topic, and need not learn its name of today.
        missing = f"The right is missing: {operation} of the topic with the id {topic_id}."
        return ProtocolError(ResourceKind.TOPIC.refusal, missing)

    def _allows(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return self.rules.decide(self._principal, self._host, operation, kind, name).allowed

    def _may_instead(self, operation: Operation, kind: ResourceKind) -> bool:
        """True if the principal has the right that does as well: of the cluster, or of some resource of the kind."""
        if kind is ResourceKind.CLUSTER:
            return self._allows(operation, kind, THE_CLUSTER)
        return self.rules.allows_anywhere(self._principal, self._host, operation, kind)


class Observing(Asking):
    """Allows everything, and notes what the rules would refuse."""

    __slots__ = ("_dry_run",)

    enforces = False

    def __init__(
        self, rules: AccessRules, key: int, version: int, session: Session, trail: Trail | None, dry_run: DryRun
    ) -> None:
        super().__init__(rules, key, version, session, trail)
        self._dry_run = dry_run

    def may(self, operation: Operation, kind: ResourceKind, name: str = THE_CLUSTER) -> bool:
        if not super().may(operation, kind, name):
            self._dry_run.would_refuse(str(self._principal), self._host, right_of(operation, kind, name))
        return True

    def operations(self, kind: ResourceKind, name: str = THE_CLUSTER) -> int:
        return as_bits(kind.operations)

    def may_see_topic(self, name: str) -> bool:
        return True


class DryRun:
    """Logs each kind of refusal once: a client repeats its requests."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def would_refuse(self, principal: str, host: str, right: str) -> None:
        if (principal, right) in self._told or len(self._told) >= MOST_TOLD:
            return
        self._told.add((principal, right))
        logger.warning("authorizer.dry.run: %s at %s would be refused: %s", principal, host, right)
        if len(self._told) == MOST_TOLD:
            logger.warning("authorizer.dry.run: further refusals are not logged until the broker starts again")


def right_of(operation: Operation, kind: ResourceKind, name: str) -> str:
    return f"{operation} of the cluster" if kind is ResourceKind.CLUSTER else f"{operation} of the {kind} '{name}'"


@cache
def _right(key: int, version: int, operation: Operation, kind: ResourceKind) -> Right:
    for right in RIGHTS[key]:
        if (right.operation, right.kind) == (operation, kind) and right.holds_in(version):
            return right
    raise AssertionError(f"the table of rights has no {operation} of a {kind} for API {key} version {version}")

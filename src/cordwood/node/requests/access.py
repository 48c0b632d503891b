"""The one place that judges requests: may this principal do this with that resource?

A handler asks the `Judge` of its request about each resource that the request names, and answers with the refusal that
it gets. The table of rights (`rights.py`) says which questions an API has; a question that the table does not have is a
fault of the handler, and an assertion. Without an authorizer everybody may do everything, but for requests that only
brokers may send (`brokers_only.py`).
"""

from __future__ import annotations

from functools import cache
from typing import Final

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicId, no_topic_with
from cordwood.node.requests.proven_brokers import is_proven
from cordwood.node.requests.rights import RIGHTS, Right
from cordwood.security.access_rules import AccessRules
from cordwood.security.acls import THE_CLUSTER
from cordwood.security.operations import Operation, ResourceKind, as_bits
from cordwood.security.sessions import THIS_BROKER, Session
from cordwood.wire.requests import RequestHeader


class Access:
    """Finds the judge of each request."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self.rules: AccessRules | None = None
        """None: there is no authorizer."""

    def judge(self, header: RequestHeader, session: Session) -> Judge:
        if self.rules is None or session.principal is THIS_BROKER or is_proven(self._image, header):
            return EVERYTHING_ALLOWED
        return Asking(self.rules, header.api_key, header.api_version, session)


class Judge:
    """Answers the questions of one request; this one allows everything."""

    __slots__ = ()

    asks: bool = False
    """True if there is an authorizer, and the sender of the request is not a proven broker."""
    revision: int = 0
    """A judgement holds as long as the revision is the same."""

    def may(self, operation: Operation, kind: ResourceKind, name: str = THE_CLUSTER) -> bool:
        return True

    def operations(self, kind: ResourceKind, name: str = THE_CLUSTER) -> int:
        """What the principal may do with the resource, as answers tell it."""
        return as_bits(kind.operations)

    def may_see_topic(self, name: str) -> bool:
        """True if the principal may know that there is such a topic."""
        return True

    def refusal(self, operation: Operation, kind: ResourceKind, name: str = THE_CLUSTER) -> ProtocolError | None:
        """The answer to somebody who may not do this, or None."""
        if self.may(operation, kind, name):
            return None
        right = f"{operation} of the cluster" if kind is ResourceKind.CLUSTER else f"{operation} of the {kind} '{name}'"
        return ProtocolError(kind.refusal, f"The right is missing: {right}.")

    def error(self, operation: Operation, kind: ResourceKind, name: str = THE_CLUSTER) -> ErrorCode:
        """The error for somebody who may not do this, or NONE."""
        return ErrorCode.NONE if self.may(operation, kind, name) else kind.refusal

    def group_error(self, operation: Operation, group_id: str) -> ErrorCode:
        """The error for somebody who may not do this with the group, or NONE. No group has an empty id."""
        return self.error(operation, ResourceKind.GROUP, group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def topic_refusal(self, operation: Operation, name: str, topic_id: TopicId | None) -> ProtocolError | None:
        """The answer to somebody who may not do this with the topic, or None. `topic_id`: the request names the topic
        by its id; somebody who may not see the topic is told that there is none."""
        if topic_id is not None and not self.may_see_topic(name):
            return no_topic_with(topic_id)
        return self.refusal(operation, ResourceKind.TOPIC, name)


EVERYTHING_ALLOWED: Final = Judge()


class Asking(Judge):
    """Answers by the rules of the moment."""

    __slots__ = ("_host", "_key", "_principal", "_rules", "_version")

    asks = True

    def __init__(self, rules: AccessRules, key: int, version: int, session: Session) -> None:
        self._rules = rules
        self._key = key
        self._version = version
        self._principal = str(session.principal)
        self._host = session.host

    @property
    def revision(self) -> int:  # type: ignore[override]
        return self._rules.revision

    def may(self, operation: Operation, kind: ResourceKind, name: str = THE_CLUSTER) -> bool:
        right = _right(self._key, self._version, operation, kind)
        return self._allows(operation, kind, name) or any(self._may_instead(*other) for other in right.instead)

    def operations(self, kind: ResourceKind, name: str = THE_CLUSTER) -> int:
        return as_bits(operation for operation in kind.operations if self._allows(operation, kind, name))

    def may_see_topic(self, name: str) -> bool:
        return self._allows(Operation.DESCRIBE, ResourceKind.TOPIC, name)

    def _allows(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return self._rules.decide(self._principal, self._host, operation, kind, name).allowed

    def _may_instead(self, operation: Operation, kind: ResourceKind) -> bool:
        """True if the principal has the right that does as well: of the cluster, or of some resource of the kind."""
        if kind is ResourceKind.CLUSTER:
            return self._allows(operation, kind, THE_CLUSTER)
        return self._rules.allows_anywhere(self._principal, self._host, operation, kind)


@cache
def _right(key: int, version: int, operation: Operation, kind: ResourceKind) -> Right:
    for right in RIGHTS[key]:
        if (right.operation, right.kind) == (operation, kind) and right.holds_in(version):
            return right
    raise AssertionError(f"the table of rights has no {operation} of a {kind} for API {key} version {version}")

"""Checks answers against the rules of access: nothing is given or taken without a right, and nothing refused with it.

The checker keeps the rules of each revision. What an answer gives or has done needs a right at some moment since the
request arrived; what an answer tells that may have waited needs it when the answer leaves. The checker reads all rules
for each question, and knows nothing of the broker's tables and caches.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from cordwood.model.acls import Acl, Permission
from cordwood.model.operations import Operation, ResourceKind
from cordwood.security.sessions import Session
from simulation.world.broken import InvariantBroken
from simulation.world.exchange import Exchange


class Claim(NamedTuple):
    """What an answer says of a right, by what it gives or refuses."""

    operation: Operation
    kind: ResourceKind
    name: str
    given: bool
    leaving: bool = False
    """True if the right is needed when the answer leaves."""


class RightsChecker:
    def __init__(self, rules: Callable[[], Iterable[Acl]], super_user: str) -> None:
        """`rules` reads the rules of the cluster as the broker has them in its image."""
        self._read = rules
        self._super_user = super_user
        self._history: list[frozenset[Acl]] = [frozenset(rules())]
        self._arrived: dict[Exchange, int] = {}
        """The place in the history at which each request arrived."""
        self._too_late: set[Exchange] = set()
        """Requests that arrived after the end of their session."""
        self.given = self.refused = self.too_late = 0

    @property
    def revisions(self) -> int:
        return len(self._history)

    def look(self) -> None:
        """Notes the rules if they have changed. Called before anything that depends on them."""
        rules = frozenset(self._read())
        if rules != self._history[-1]:
            self._history.append(rules)

    def arrived(self, exchange: Exchange, now_ms: int) -> None:
        self.look()
        self._arrived[exchange] = len(self._history) - 1
        ends_ms = exchange.session.ends_ms
        if ends_ms is not None and now_ms >= ends_ms:
            self._too_late.add(exchange)
            self.too_late += 1

    def answered(self, exchange: Exchange, claims: Iterable[Claim]) -> None:
        self.look()
        if exchange in self._too_late:
            raise InvariantBroken(f"{exchange} was answered after the end of its session")
        since = self._history[self._arrived.pop(exchange) :]
        for claim in claims:
            moments = since[-1:] if claim.given and claim.leaving else since
            if not any(self._allows(rules, exchange.session, claim) is claim.given for rules in moments):
                verb = "gave" if claim.given else "refused"
                raise InvariantBroken(
                    f"{exchange} {verb} {exchange.session.principal} {claim.operation} of the {claim.kind} "
                    f"'{claim.name}' against the rules"
                )
            self.given += claim.given
            self.refused += not claim.given

    def _allows(self, rules: frozenset[Acl], session: Session, claim: Claim) -> bool:
        if str(session.principal) == self._super_user:
            return True
        about = [
            rule
            for rule in rules
            if rule.kind is claim.kind
            and rule.covers(claim.name)
            and rule.names(str(session.principal), session.host)
            and rule.decides(claim.operation)
        ]
        permissions = {rule.permission for rule in about}
        return Permission.ALLOW in permissions and Permission.DENY not in permissions

"""The rules of a cluster as one decision: may this principal, from this host, do this with that resource?

The order is that of Kafka's StandardAuthorizer: super users may do everything; a rule that denies wins over rules that
allow; without a rule about the resource everybody is refused, unless `allow.everyone.if.no.acl.found` says otherwise.
Rules about a principal's groups count as those about the principal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from cordwood.model.acls import EVERY_PRINCIPAL, EVERYTHING, Acl, Pattern, Permission
from cordwood.model.addresses import plain_address
from cordwood.model.operations import Operation, ResourceKind
from cordwood.security.sessions import Principal

MAX_KEPT_DECISIONS: Final = 20_000
"""At about 300 bytes each: 6 MB."""


class Decision(NamedTuple):
    allowed: bool
    rule: Acl | None
    """The rule that decided; None: no rule did."""
    why: str


_Question = tuple[Principal, str, Operation, ResourceKind, str]
_ByPrincipal = dict[str, list[Acl]]

_SUPER_USER: Final = Decision(True, None, "the principal is a super user (super.users)")
_NO_RULE: Final = Decision(False, None, "no rule allows it")
_NO_RULE_AT_ALL: Final = Decision(
    True, None, "there is no rule about the resource, and allow.everyone.if.no.acl.found is true"
)


class AccessRules:
    """All rules, found by the name of a resource in a few look-ups; decisions are kept until a rule changes."""

    def __init__(self, super_users: Iterable[str] = (), *, everyone_without_rules: bool = False) -> None:
        self.revision = 0
        """Counts the changes of rules: a decision holds as long as the revision is the same."""
        self._super_users = frozenset(super_users)
        self._everyone_without_rules = everyone_without_rules
        self._rules: dict[str, set[Acl]] = {}
        """By principal."""
        self._literal: dict[tuple[ResourceKind, str], _ByPrincipal] = {}
        self._prefixed: dict[tuple[ResourceKind, str], _ByPrincipal] = {}
        self._hosts: Counter[str] = Counter()
        """How many rules name each address."""
        self._lengths: dict[ResourceKind, dict[int, int]] = {}
        """How many prefixes of each length have rules: a name is looked up once for each length."""
        self.refused: Counter[tuple[Operation, ResourceKind]] = Counter()
        """Rights that requests lacked, since the start: the judge counts them."""
        self._kept: dict[_Question, Decision] = {}
        self._kept_anywhere: dict[tuple[Principal, str, Operation, ResourceKind], bool] = {}

    def __len__(self) -> int:
        return sum(map(len, self._rules.values()))

    def __iter__(self) -> Iterator[Acl]:
        return chain.from_iterable(self._rules.values())

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._rules.get(acl.principal, ())

    def add(self, acl: Acl) -> None:
        if acl in self:
            return
        self._changed()
        self._rules.setdefault(acl.principal, set()).add(acl)
        self._hosts[plain_address(acl.host)] += 1
        prefixed = acl.pattern is Pattern.PREFIXED
        place = (self._prefixed if prefixed else self._literal).setdefault((acl.kind, acl.name), {})
        if prefixed and not place:
            lengths = self._lengths.setdefault(acl.kind, {})
            lengths[len(acl.name)] = lengths.get(len(acl.name), 0) + 1
        place.setdefault(acl.principal, []).append(acl)

    def remove(self, acl: Acl) -> None:
        if acl not in self:
            return
        self._changed()
        of_principal = self._rules[acl.principal]
        of_principal.remove(acl)
        host = plain_address(acl.host)
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        if not of_principal:
            del self._rules[acl.principal]
        prefixed = acl.pattern is Pattern.PREFIXED
        places = self._prefixed if prefixed else self._literal
        place = places[acl.kind, acl.name]
        place[acl.principal].remove(acl)
        if not place[acl.principal]:
            del place[acl.principal]
        if place:
            return
        del places[acl.kind, acl.name]
        if prefixed:
            lengths = self._lengths[acl.kind]
            lengths[len(acl.name)] -= 1
            if not lengths[len(acl.name)]:
                del lengths[len(acl.name)]

    def name_host(self, host: str) -> bool:
        """True if some rule is about this address alone."""
        return host in self._hosts

    def decide(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> Decision:
        question = (principal, host, operation, kind, name)
        decision = self._kept.get(question)
        if decision is None:
            if len(self._kept) >= MAX_KEPT_DECISIONS:
                self._kept.clear()
            decision = self._kept[question] = self._decide(*question)
        return decision

    def grants(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """True if a rule allows this, or the principal is a super user: that there is no rule is not enough."""
        decision = self.decide(principal, host, operation, kind, name)
        return decision.allowed and decision is not _NO_RULE_AT_ALL

    def allows_anywhere(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """True if the principal may do this with some resource of the kind, whether or not it exists."""
        question = (principal, host, operation, kind)
        allowed = self._kept_anywhere.get(question)
        if allowed is None:
            if len(self._kept_anywhere) >= MAX_KEPT_DECISIONS:
                self._kept_anywhere.clear()
            allowed = self._kept_anywhere[question] = self._allows_anywhere(*question)
        return allowed

    def _changed(self) -> None:
        self.revision += 1
        self._kept.clear()
        self._kept_anywhere.clear()

    def _places(self, kind: ResourceKind, name: str) -> Iterator[_ByPrincipal]:
        """The rules that cover a resource."""
        for literal in (name, EVERYTHING):
            place = self._literal.get((kind, literal))
            if place is not None:
                yield place
            if name == EVERYTHING:
                break
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                place = self._prefixed.get((kind, name[:length]))
                if place is not None:
                    yield place

    def _decide(self, who: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> Decision:
        names = (str(who), *who.groups)
        if not self._super_users.isdisjoint(names):
            return _SUPER_USER
        allowing: Acl | None = None
        any_rule = False
        for place in self._places(kind, name):
            any_rule = True
            for named in (*names, EVERY_PRINCIPAL):
                for rule in place.get(named, ()):
                    if rule.names(named, host) and rule.decides(operation):
                        if rule.permission is Permission.DENY:
                            return Decision(False, rule, "a rule denies it")
                        allowing = allowing or rule
        if allowing is not None:
            return Decision(True, allowing, "a rule allows it")
        return _NO_RULE_AT_ALL if self._everyone_without_rules and not any_rule else _NO_RULE

    def _allows_anywhere(self, who: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        names = (str(who), *who.groups)
        if not self._super_users.isdisjoint(names):
            return True
        about = [
            rule
            for named in (*names, EVERY_PRINCIPAL)
            for rule in self._rules.get(named, ())
            if rule.kind is kind and rule.names(named, host) and rule.decides(operation)
        ]
        denied = [rule for rule in about if rule.permission is Permission.DENY]
        if any(rule.covers_all for rule in denied):
            return False
        if self._everyone_without_rules:
            return True
        return any(
            not any(_covers_all_of(denial, rule) for denial in denied)
            for rule in about
            if rule.permission is Permission.ALLOW
        )


def _covers_all_of(denial: Acl, rule: Acl) -> bool:
    """True if every resource of the rule is one of the denial's."""
    if rule.covers_all or (rule.pattern is Pattern.PREFIXED and denial.pattern is Pattern.LITERAL):
        return denial.covers_all
    return denial.covers(rule.name)

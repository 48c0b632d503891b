"""Rules of access (ACLs), under Kafka's names and numbers: what they say, and filters that select them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from cordwood.model.addresses import is_address, plain_address
from cordwood.model.operations import Operation, ResourceKind

EVERYTHING: Final = "*"
"""As the name of a resource that a literal rule names: every resource of the kind. As a host: every host."""

EVERY_PRINCIPAL: Final = "User:*"

THE_CLUSTER: Final = "kafka-cluster"
"""The one name of a resource of the kind `CLUSTER`."""

MAX_NAME_LENGTH: Final = 1_000
"""A rule with a longer resource name, principal or host is refused: rules are held in memory by every broker."""


class Pattern(IntEnum):
    """How a rule names its resources."""

    LITERAL = 3
    PREFIXED = 4

    def __str__(self) -> str:
        return self.name.lower()


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3

    def __str__(self) -> str:
        return self.name.lower()


class Acl(NamedTuple):
    """One rule: what a principal may or may not do from a host on some resources."""

    kind: ResourceKind
    pattern: Pattern
    name: str
    principal: str
    """Kind and name, as `User:alice`."""
    host: str
    """An address in any spelling, or `*`; never a name or a range."""
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        what = "everything" if self.operation is Operation.ALL else str(self.operation)
        resource = str(self.kind)
        if self.kind is not ResourceKind.CLUSTER:
            names = f"whose name begins with '{self.name}'" if self.pattern is Pattern.PREFIXED else f"'{self.name}'"
            resource = f"every {self.kind}" if self.covers_all else f"{self.kind} {names}"
        who = "everybody" if self.principal == EVERY_PRINCIPAL else self.principal
        where = "" if self.host == EVERYTHING else f" from {self.host}"
        return f"{self.permission} {who}{where}: {what} on {resource}"

    @property
    def covers_all(self) -> bool:
        """True if the rule names every resource of its kind."""
        return self.pattern is Pattern.LITERAL and self.name == EVERYTHING

    def covers(self, name: str) -> bool:
        """True if the resource of this name is one of the rule's."""
        if self.pattern is Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, EVERYTHING)

    def names(self, principal: str, host: str) -> bool:
        """True if the rule is about this principal at this host, an address in its plain spelling."""
        return self.principal in (principal, EVERY_PRINCIPAL) and (
            self.host in (host, EVERYTHING) or plain_address(self.host) == host
        )

    def decides(self, operation: Operation) -> bool:
        """True if the rule is about this operation. Leave to change or read something implies leave to describe it; a
        denial implies nothing."""
        if self.operation in (operation, Operation.ALL):
            return True
        return self.permission is Permission.ALLOW and operation in _IMPLIED.get(self.operation, ())


_IMPLIED: Final = {
    Operation.READ: (Operation.DESCRIBE,),
    Operation.WRITE: (Operation.DESCRIBE,),
    Operation.DELETE: (Operation.DESCRIBE,),
    Operation.ALTER: (Operation.DESCRIBE,),
    Operation.ALTER_CONFIGS: (Operation.DESCRIBE_CONFIGS,),
}


class InvalidAcl(ValueError):
    """A rule that cannot be kept, with the reason."""


def check(acl: Acl) -> None:
    """Raises InvalidAcl for a rule that could never decide a request, or that is too long to hold."""
    if not acl.name:
        raise InvalidAcl("The rule names no resource.")
    kind, colon, name = acl.principal.partition(":")
    if not (kind and colon and name):
        raise InvalidAcl(f"'{acl.principal}' is not a principal: kind and name are needed, as in User:alice.")
    if not acl.host:
        raise InvalidAcl("The rule names no host; '*' stands for all.")
    if acl.host != EVERYTHING and not is_address(acl.host):
        raise InvalidAcl(
            f"The host of a rule is '*' or one IP address, not '{acl.host:.100}': names are not resolved, and ranges "
            "are not known. Such a rule would never hold."
        )
    if acl.kind is ResourceKind.CLUSTER and (acl.name != THE_CLUSTER or acl.pattern is not Pattern.LITERAL):
        raise InvalidAcl(f"The one resource of the kind cluster is the literal '{THE_CLUSTER}', not '{acl.name}'.")
    if acl.operation is not Operation.ALL and acl.operation not in acl.kind.operations:
        able = ", ".join(map(str, acl.kind.operations))
        raise InvalidAcl(f"The operation {acl.operation} does not apply to a {acl.kind}; these do: {able}, All.")
    for what, text in (("resource", acl.name), ("principal", acl.principal), ("host", acl.host)):
        if len(text) > MAX_NAME_LENGTH:
            raise InvalidAcl(f"The {what} of the rule has {len(text)} characters, more than {MAX_NAME_LENGTH}.")


class AclFilter(NamedTuple):
    """Selects rules: None selects every value of a field."""

    kind: ResourceKind | None = None
    name: str | None = None
    patterns: tuple[Pattern, ...] = tuple(Pattern)
    covering: bool = False
    """True: the name is that of a resource, and rules are selected that cover it. False: rules of that very name."""
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    def selects(self, acl: Acl) -> bool:
        return (
            self.kind in (None, acl.kind)
            and acl.pattern in self.patterns
            and (self.name is None or (acl.covers(self.name) if self.covering else acl.name == self.name))
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (None, acl.operation)
            and self.permission in (None, acl.permission)
        )

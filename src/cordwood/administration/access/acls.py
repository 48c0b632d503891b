"""Rules of access (ACLs): made, found and deleted through the requests of Kafka's tools, by any broker."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from cordwood.administration.access.may_describe import check_may_describe
from cordwood.model.acls import Acl, AclFilter, Pattern, Permission
from cordwood.model.addresses import plain_address
from cordwood.model.failure import Failure
from cordwood.model.operations import Operation, ResourceKind
from cordwood.model.settings.authorizer_settings import principals_in
from cordwood.security.access_rules import AccessRules, Decision
from cordwood.security.sessions import Principal

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cordwood.administration.connection import Connection

KINDS: Final = (ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.TRANSACTIONAL_ID, ResourceKind.CLUSTER)
"""The kinds of resources that librdkafka knows; it can name neither users nor delegation tokens."""
MAX_RULES_IN_REQUEST: Final = 1_000

EVERY_RULE: Final = AclFilter()

_UNKNOWN: Final = 0


class Authorizer(NamedTuple):
    """How a broker asks for rights."""

    is_on: bool
    super_users: tuple[str, ...]
    everyone_without_rules: bool
    dry_run: bool


def as_json(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "permission": str(acl.permission),
        "operation": str(acl.operation),
        "resource": str(acl.kind),
        "name": acl.name,
        "pattern": str(acl.pattern),
    }


def rules(connection: Connection, selected: AclFilter = EVERY_RULE) -> list[Acl]:
    """The rules that a filter selects, in a fixed order. Raises Failure."""
    check_may_describe(connection)
    asked = _as_filter(selected)
    found = connection.ask(lambda admin: cast("Future[list[Any]]", admin.describe_acls(asked)))
    if not found and not authorizer(connection).is_on:
        # librdkafka drops the error of the answer.
        raise Failure(
            "SECURITY_DISABLED",
            "the brokers have no rules of access: authorizer.class.name is not set",
            "docs/security.md says how to switch rights on",
        )
    return sorted(acl for acl in map(_from_client, found) if acl is not None)


def add_rules(connection: Connection, acls: Sequence[Acl]) -> None:
    """Makes rules; a rule that exists stays. Raises Failure."""
    for begin in range(0, len(acls), MAX_RULES_IN_REQUEST):
        bindings = [AclBinding(*_fields(acl)) for acl in acls[begin : begin + MAX_RULES_IN_REQUEST]]
        connection.ask_all(methodcaller("create_acls", bindings))


def remove_rules(connection: Connection, acls: Sequence[Acl]) -> None:
    """Deletes these rules and no others. Raises Failure."""
    for begin in range(0, len(acls), MAX_RULES_IN_REQUEST):
        filters = [AclBindingFilter(*_fields(acl)) for acl in acls[begin : begin + MAX_RULES_IN_REQUEST]]
        connection.ask_all(methodcaller("delete_acls", filters))


def authorizer(connection: Connection) -> Authorizer:
    """How the broker that the client reached first asks for rights. Raises Failure."""
    metadata = connection.call(lambda: connection.admin().list_topics(timeout=connection.timeout_s))
    resource = ConfigResource(ConfigResource.Type.BROKER, str(min(metadata.brokers)))
    (settings,) = connection.ask_all(lambda admin: admin.describe_configs([resource])).values()
    texts = {name: each.value or "" for name, each in settings.items()}
    return Authorizer(
        bool(texts.get("authorizer.class.name")),
        principals_in(texts.get("super.users", "")),
        texts.get("allow.everyone.if.no.acl.found") == "true",
        texts.get("authorizer.dry.run") == "true",
    )


def explain(
    connection: Connection,
    principal: str,
    groups: tuple[str, ...],
    host: str,
    operation: Operation,
    kind: ResourceKind,
    name: str,
) -> Decision:
    """The decision of the brokers about a question, with the rule that decides. `groups` are those of the principal,
    each with its kind. Raises Failure."""
    found = authorizer(connection)
    if not found.is_on:
        return Decision(True, None, "the brokers ask nobody for rights: authorizer.class.name is not set")
    known = AccessRules(found.super_users, everyone_without_rules=found.everyone_without_rules)
    for acl in rules(connection, AclFilter(kind=kind)):
        known.add(acl)
    who, _, called = principal.partition(":")
    decision = known.decide(Principal(who, called, groups), plain_address(host), operation, kind, name)
    if found.dry_run and not decision.allowed:
        return Decision(True, decision.rule, f"authorizer.dry.run is on; without it this is refused: {decision.why}")
    return decision


def _fields(acl: Acl) -> tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation, AclPermissionType]:
    """A rule in the client's words."""
    return (
        ResourceType(int(acl.kind)),
        acl.name,
        ResourcePatternType(int(acl.pattern)),
        acl.principal,
        acl.host,
        AclOperation(int(acl.operation)),
        AclPermissionType(int(acl.permission)),
    )


def _as_filter(selected: AclFilter) -> AclBindingFilter:
    anything: Any = None  # None selects every value, which the client's types do not say
    patterns = ResourcePatternType.MATCH if selected.covering else ResourcePatternType.ANY
    if len(selected.patterns) == 1 and not selected.covering:
        patterns = ResourcePatternType(int(selected.patterns[0]))
    return AclBindingFilter(
        ResourceType.ANY if selected.kind is None else ResourceType(int(selected.kind)),
        selected.name or anything,
        patterns,
        selected.principal or anything,
        selected.host or anything,
        AclOperation.ANY if selected.operation is None else AclOperation(int(selected.operation)),
        AclPermissionType.ANY if selected.permission is None else AclPermissionType(int(selected.permission)),
    )


def _from_client(binding: Any) -> Acl | None:
    """None for a rule that librdkafka cannot name."""
    if _UNKNOWN in (binding.restype.value, binding.operation.value):
        return None
    return Acl(
        ResourceKind(binding.restype.value),
        Pattern(binding.resource_pattern_type.value),
        binding.name,
        binding.principal,
        binding.host,
        Operation(binding.operation.value),
        Permission(binding.permission_type.value),
    )

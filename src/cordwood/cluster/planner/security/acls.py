"""Plans changes of the rules of access."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from cordwood.cluster.metadata.acls import acl_id, encode_acl
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import ACLS_CHANGED, acl_key
from cordwood.cluster.metadata.versions import check_security_rows
from cordwood.cluster.planner.store_transactions import Plan, StoreTxn
from cordwood.cluster.stores.interface import Delete, Put, absent, has_mod_revision, present
from cordwood.model.acls import Acl, InvalidAcl, check
from cordwood.model.errors import ErrorCode, ProtocolError

MAX_ACLS: Final = 50_000
"""At about 1 KB each in every broker: 50 MB."""


class AclAlteration(NamedTuple):
    plan: Plan | None
    """None: there is nothing to do."""


def plan_create_acls(
    image: ClusterImage, acls: Iterable[Acl], wall_ms: int
) -> dict[Acl, AclAlteration | ProtocolError]:
    """Plans by rule. A rule that is there already is made."""
    outcomes: dict[Acl, AclAlteration | ProtocolError] = {}
    added = 0
    for acl in acls:
        try:
            outcomes[acl] = _create(image, acl, added, wall_ms)
            added += 1
        except ProtocolError as refusal:
            outcomes[acl] = refusal
    return outcomes


def _create(image: ClusterImage, acl: Acl, added: int, wall_ms: int) -> AclAlteration:
    check_security_rows(image.metadata_version, "rules of access")
    try:
        check(acl)
    except InvalidAcl as reason:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, str(reason)) from None
    own_id = acl_id(acl)
    if own_id in image.acls.rows:
        return AclAlteration(None)
    if len(image.acls) + added >= MAX_ACLS:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION, f"There are {MAX_ACLS} rules of access: a prefix can take the place of many."
        )
    key = acl_key(own_id)
    creation = StoreTxn((absent(key),), (Put(key, encode_acl(acl)), _changed(wall_ms)))
    return AclAlteration(Plan((), creation, happened=(present(key),)))


def plan_delete_acls(
    image: ClusterImage, acls: Iterable[Acl], wall_ms: int
) -> dict[Acl, AclAlteration | ProtocolError]:
    """Plans by rule. A rule that is gone already is deleted."""
    outcomes: dict[Acl, AclAlteration | ProtocolError] = {}
    for acl in acls:
        own_id = acl_id(acl)
        row, key = image.acls.rows.get(own_id), acl_key(own_id)
        if row is None:
            outcomes[acl] = AclAlteration(None)
        else:
            deletion = StoreTxn((has_mod_revision(key, row.mod_revision),), (Delete(key), _changed(wall_ms)))
            outcomes[acl] = AclAlteration(Plan((), deletion, happened=(absent(key),)))
    return outcomes


def _changed(wall_ms: int) -> Put:
    return Put(ACLS_CHANGED, b"%d" % wall_ms)

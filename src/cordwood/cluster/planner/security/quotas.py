"""Plans changes of quotas, and refuses them as Kafka does. An entity without quotas has no row."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.quotas import encode_quotas, quota_id
from cordwood.cluster.metadata.rows import quota_key
from cordwood.cluster.metadata.versions import check_security_rows
from cordwood.cluster.planner.store_transactions import Plan, StoreTxn
from cordwood.cluster.stores.interface import Delete, Put, absent, has_mod_revision, has_value
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.quotas import Entity, InvalidQuota, check_quota

MAX_ENTITIES: Final = 10_000
"""At about 1 KB each in every broker: 10 MB. Defaults take the place of many."""


class QuotaChange(NamedTuple):
    key: str
    value: float | None
    """None: the quota is removed."""


EntityChange = tuple[Entity, Sequence[QuotaChange]]


class QuotaAlteration(NamedTuple):
    plan: Plan | None
    """None: there is nothing to do."""


def plan_alter_quotas(
    image: ClusterImage, changes: Iterable[EntityChange]
) -> dict[Entity, QuotaAlteration | ProtocolError]:
    """Plans by entity."""
    outcomes: dict[Entity, QuotaAlteration | ProtocolError] = {}
    added = 0
    for entity, wanted in changes:
        try:
            outcomes[entity] = _alter(image, entity, wanted, added)
            added += entity not in image.quotas.by_entity
        except ProtocolError as refusal:
            outcomes[entity] = refusal
    return outcomes


def _alter(image: ClusterImage, entity: Entity, changes: Sequence[QuotaChange], added: int) -> QuotaAlteration:
    check_security_rows(image.metadata_version, "quotas")
    before = image.quotas.by_entity.get(entity, {})
    after = dict(before)
    for change in changes:
        try:
            check_quota(entity, change.key, 1.0 if change.value is None else change.value)
        except InvalidQuota as reason:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, str(reason)) from None
        if change.value is None:
            after.pop(change.key, None)
        else:
            after[change.key] = change.value
    if after == before:
        return QuotaAlteration(None)
    if not before and len(image.quotas.by_entity) + added >= MAX_ENTITIES:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION, f"{MAX_ENTITIES} entities have quotas: a default can take the place of many."
        )
    own_id = quota_id(entity)
    key, mod_revision = quota_key(own_id), image.quotas.mod_revisions.get(own_id, 0)
    unchanged = has_mod_revision(key, mod_revision)
    if not after:
        return QuotaAlteration(Plan((), StoreTxn((unchanged,), (Delete(key),)), happened=(absent(key),)))
    row = encode_quotas(entity, after)
    return QuotaAlteration(Plan((), StoreTxn((unchanged,), (Put(key, row),)), happened=(has_value(key, row),)))

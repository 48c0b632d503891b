"""Families: one decision over many transactions, by requests of Cordwood's own that Apache Kafka does not have.

`Cluster.supports(ApiKey.FAMILY_JOIN)` tells whether a cluster has families (docs/decisions/transaction-families.md).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cordwood.client.answers import ProducerIdentity
from cordwood.client.brokers import Brokers, KeyType
from cordwood.client.errors import ClientError, error_code, refusal
from cordwood.client.link import Link
from cordwood.model.families import coordinator_key
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.message_types.family_decide import FamilyDecide
    from cordwood.wire.message_types.family_join import FamilyJoin
    from cordwood.wire.message_types.family_recall import FamilyRecall
    from cordwood.wire.message_types.family_renew import FamilyRenew

    FamilyAnswer = FamilyJoin.Response | FamilyRenew.Response | FamilyDecide.Response


class FamilyMember(NamedTuple):
    """A writer of a batch: its slot, which is a transactional id, and its producer."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)


class FamilyStanding(NamedTuple):
    decided: bool
    """True if the batch is decided: records still written for it are thrown away."""
    last_batch_id: int
    """The last decided batch; -1: none yet."""


class FamilyJoined(NamedTuple):
    standing: FamilyStanding
    member: FamilyMember | None
    """None if the batch is decided and needs no writer."""


class FamilyDecided(NamedTuple):
    already_decided: bool
    """True if an earlier request decided the batch, possibly a lost try of this one. A success either way."""
    last_batch_id: int


class FamilyPlan(NamedTuple):
    """The inputs of a batch, for its family to remember. Only the writers of batches know the meaning."""

    rows: int = -1
    """The number of rows; -1: unknown."""
    digest: bytes = b""
    """At most MAX_PLAN_DIGEST_BYTES. Empty: unknown."""
    text: bytes = b""
    """At most MAX_PLAN_BYTES. Empty: the plan was too long to be kept."""


NO_PLAN = FamilyPlan()


class FamilyMemory(NamedTuple):
    last_batch_id: int
    """The last decided batch; -1: none yet."""
    decided_ms: int
    plan: FamilyPlan


class FamilyDescription(NamedTuple):
    name: str
    last_batch_id: int
    decided_ms: int
    forgotten: bool
    slots: int
    joined_slots: int
    open_slots: int
    completing_slots: int


def join(brokers: Brokers, family: str, batch_id: int, timeout_ms: int) -> FamilyJoined:
    def read(link: Link, response: FamilyJoin.Response) -> FamilyJoined:
        _check(link, ApiKey.FAMILY_JOIN, family, batch_id, response)
        standing = FamilyStanding(response.decided, response.last_batch_id)
        if response.decided:
            return FamilyJoined(standing, None)
        if response.transactional_id is None:
            raise ClientError(
                f"{link.name} answered a FamilyJoin of batch {batch_id} of family {family} without a slot"
            )
        member = FamilyMember(response.transactional_id, response.producer_id, response.producer_epoch)
        return FamilyJoined(standing, member)

    values = {"family": family, "batch_id": batch_id, "timeout_ms": timeout_ms}
    return brokers.ask_coordinator(KeyType.TRANSACTION, coordinator_key(family), ApiKey.FAMILY_JOIN, values, read)


def renew(brokers: Brokers, family: str, batch_id: int) -> FamilyStanding:
    def read(link: Link, response: FamilyRenew.Response) -> FamilyStanding:
        _check(link, ApiKey.FAMILY_RENEW, family, batch_id, response)
        return FamilyStanding(response.decided, response.last_batch_id)

    values = {"family": family, "batch_id": batch_id}
    return brokers.ask_coordinator(KeyType.TRANSACTION, coordinator_key(family), ApiKey.FAMILY_RENEW, values, read)


def decide(
    brokers: Brokers,
    family: str,
    batch_id: int,
    commit: bool,
    winners: Sequence[FamilyMember],
    forget: bool,
    plan: FamilyPlan,
) -> FamilyDecided:
    def read(link: Link, response: FamilyDecide.Response) -> FamilyDecided:
        _check(link, ApiKey.FAMILY_DECIDE, family, batch_id, response)
        return FamilyDecided(response.already_decided, response.last_batch_id)

    timeout_ms = brokers.settings.request_timeout_ms
    values = {
        "family": family,
        "batch_id": batch_id,
        "commit": commit,
        "winners": [winner._asdict() for winner in winners],
        "forget": forget,
        "timeout_ms": timeout_ms,
        "rows": plan.rows,
        "plan_digest": plan.digest,
        "plan": plan.text,
    }
    return brokers.ask_coordinator(
        KeyType.TRANSACTION, coordinator_key(family), ApiKey.FAMILY_DECIDE, values, read, wait_ms=timeout_ms
    )


def recall(brokers: Brokers, family: str) -> FamilyMemory:
    def read(link: Link, response: FamilyRecall.Response) -> FamilyMemory:
        if response.error_code:
            asked = link.was_asked(ApiKey.FAMILY_RECALL, f"of family {family}")
            raise refusal(error_code(response.error_code), asked, response.error_message)
        plan = FamilyPlan(response.rows, bytes(response.plan_digest), bytes(response.plan))
        return FamilyMemory(response.last_batch_id, response.decided_ms, plan)

    key = coordinator_key(family)
    return brokers.ask_coordinator(KeyType.TRANSACTION, key, ApiKey.FAMILY_RECALL, {"family": family}, read)


def describe(brokers: Brokers, names: Collection[str] | None) -> list[FamilyDescription]:
    """Descriptions of families, from all brokers: each broker knows the families that it coordinates."""

    def attempt() -> list[FamilyDescription]:
        found: list[FamilyDescription] = []
        values = {"families": None if names is None else sorted(names)}
        for link in brokers.all():
            response = link.ask(ApiKey.FAMILY_LIST, values)
            if response.error_code:
                raise refusal(error_code(response.error_code), link.was_asked(ApiKey.FAMILY_LIST, ""))
            found += [
                FamilyDescription(*(getattr(row, name) for name in FamilyDescription._fields))
                for row in response.families
            ]
        return sorted(found)

    return brokers.retried(attempt)


def _check(link: Link, api_key: ApiKey, family: str, batch_id: int, response: FamilyAnswer) -> None:
    if response.error_code:
        about = f"of family {family}, batch {batch_id}"
        raise refusal(error_code(response.error_code), link.was_asked(api_key, about), response.error_message)

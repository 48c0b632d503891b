"""Transaction families, APIs of our own: FamilyJoin, FamilyRenew, FamilyDecide, FamilyRecall, FamilyList.

Fields are those of `wire/messages/Family*.txt`. Clients may retry after the coordinator's usual errors and
REQUEST_TIMED_OUT; all other errors are final and have a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.families import (
    MAX_FAMILY_NAME_LENGTH,
    MAX_PLAN_BYTES,
    MAX_PLAN_DIGEST_BYTES,
    is_family_name,
)
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.coordinators.family_coordinator import Standing
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.request import Made, Request, serves
from cordwood.transactions.families import JOINED, Family
from cordwood.transactions.families_deciding import Asked, Decision, Winner
from cordwood.transactions.families_joining import MAX_SLOTS, Joined
from cordwood.transactions.families_records import NOTHING_DECIDED, Memory, Plan
from cordwood.transactions.transaction import PREPARED, State
from cordwood.transactions.transactional_ids import Transactions
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.coordinators.transaction_coordinator import TransactionCoordinator
    from cordwood.node.requests.access import Judge
    from cordwood.wire.message_types.family_decide import FamilyDecide
    from cordwood.wire.message_types.family_join import FamilyJoin
    from cordwood.wire.message_types.family_list import FamilyList
    from cordwood.wire.message_types.family_recall import FamilyRecall
    from cordwood.wire.message_types.family_renew import FamilyRenew


MAX_WINNERS = MAX_SLOTS
LISTED_PER_STEP = 1_000
MAX_WAIT_MS = 300_000
"""The longest that the answer to a decision waits for markers. A client may ask again."""


class FamilyRooms(Protocol):
    """The rooms of a node that these handlers need."""

    image: ClusterImage
    transactions: TransactionCoordinator


def family_join(rooms: FamilyRooms, request: Request[FamilyJoin]) -> None:
    """Gives a slot to a writer of a batch, unless the batch is decided."""
    body = request.decode()
    request.let_go_of_frame()

    def answer(joined: Joined) -> None:
        slot = joined.slot
        request.answer(
            error_code=joined.error,
            error_message=joined.message,
            decided=joined.decided,
            last_batch_id=joined.last_batch_id,
            transactional_id=None if slot is None else slot.transactional_id,
            producer_id=-1 if slot is None else slot.producer_id,
            producer_epoch=-1 if slot is None else slot.producer_epoch,
        )

    max_timeout_ms = rooms.image.settings.transaction_max_timeout_ms
    problem = _problem(body.family, body.batch_id)
    refusal = _refusal(request.judge, Operation.WRITE, body.family)
    if refusal is not None:
        answer(Joined(refusal.code, refusal.message))
    elif problem is not None:
        answer(Joined(ErrorCode.INVALID_REQUEST, problem))
    elif not 0 < body.timeout_ms <= max_timeout_ms:
        message = f"A timeout of {body.timeout_ms} ms is not between 1 and transaction.max.timeout.ms={max_timeout_ms}."
        answer(Joined(ErrorCode.INVALID_TRANSACTION_TIMEOUT, message))
    else:
        rooms.transactions.families.join(body.family, body.batch_id, body.timeout_ms, answer)


def family_renew(rooms: FamilyRooms, request: Request[FamilyRenew]) -> None:
    """Renews the lease of a batch: its writers have their full timeout again."""
    body = request.decode()

    def answer(standing: Standing, message: str | None = None) -> None:
        request.answer(
            error_code=standing.error,
            error_message=message,
            decided=standing.decided,
            last_batch_id=standing.last_batch_id,
        )

    problem = _problem(body.family, body.batch_id)
    refusal = _refusal(request.judge, Operation.WRITE, body.family)
    if refusal is not None:
        answer(Standing(refusal.code), refusal.message)
    elif problem is not None:
        answer(Standing(ErrorCode.INVALID_REQUEST), problem)
    else:
        rooms.transactions.families.renew(body.family, body.batch_id, answer)


def family_decide(rooms: FamilyRooms, request: Request[FamilyDecide]) -> Steps:
    """Commits the slots of the winners and aborts the rest, or aborts all slots, or only the named ones; answers when
    the markers are committed."""
    body = yield from request.read()
    request.let_go_of_frame()

    def answer(decision: Decision) -> None:
        request.answer(
            error_code=decision.error,
            error_message=decision.message,
            already_decided=decision.already_decided,
            last_batch_id=decision.last_batch_id,
        )

    refusal = _refusal(request.judge, Operation.WRITE, body.family)
    if refusal is not None:
        answer(Decision(refusal.code, refusal.message))
        return
    problem = _problem(body.family, body.batch_id)
    if problem is None and len(body.winners) > MAX_WINNERS:
        problem = f"A batch has at most {MAX_WINNERS} winners, not {len(body.winners)}."
    if problem is None and (len(body.plan) > MAX_PLAN_BYTES or len(body.plan_digest) > MAX_PLAN_DIGEST_BYTES):
        problem = (
            f"A plan has at most {MAX_PLAN_BYTES} bytes and its digest {MAX_PLAN_DIGEST_BYTES}, not {len(body.plan)} "
            f"and {len(body.plan_digest)}: leave out the plan of a larger one."
        )
    if problem is not None:
        answer(Decision(ErrorCode.INVALID_REQUEST, problem))
        return
    winners = [Winner(each.transactional_id, each.producer_id, each.producer_epoch) for each in body.winners]
    plan = Plan(max(body.rows, -1), bytes(body.plan_digest), bytes(body.plan))
    asked = Asked(body.batch_id, body.commit, winners, body.forget, plan)
    timeout_ms = min(max(body.timeout_ms, 0), MAX_WAIT_MS)
    rooms.transactions.families.decide(body.family, asked, timeout_ms, answer)


def family_recall(rooms: FamilyRooms, request: Request[FamilyRecall]) -> None:
    """Answers with a family's memory of the last batch that it decided."""
    body = request.decode()

    def answer(error: ErrorCode, memory: Memory | None, message: str | None = None) -> None:
        found = memory or NOTHING_DECIDED
        request.answer(
            error_code=error,
            error_message=message,
            last_batch_id=found.last_batch_id,
            decided_ms=found.decided_ms,
            rows=found.plan.rows,
            plan_digest=found.plan.digest,
            plan=found.plan.text,
        )

    problem = _problem(body.family, 0)
    refusal = _refusal(request.judge, Operation.DESCRIBE, body.family)
    if refusal is not None:
        answer(refusal.code, None, refusal.message)
    elif problem is not None:
        answer(ErrorCode.INVALID_REQUEST, None, problem)
    else:
        rooms.transactions.families.recall(body.family, answer)


def family_list(rooms: FamilyRooms, request: Request[FamilyList]) -> Steps:
    body = yield from request.read()
    wanted = None if body.families is None else frozenset(body.families)
    judge = request.judge

    def is_told(name: str) -> bool:
        return (wanted is None or name in wanted) and _refusal(judge, Operation.DESCRIBE, name) is None

    def listed(shards: list[Transactions]) -> Steps:
        found: list[Family] = []
        for shard in shards:
            names = shard.families.names()
            for start in range(0, len(names), LISTED_PER_STEP):
                some = names[start : start + LISTED_PER_STEP]
                found += [shard.families.get(name) for name in some if is_told(name)]
                yield
        request.answer(error_code=ErrorCode.NONE, families=Made(found, _described))

    rooms.transactions.when_loaded(lambda shards: request.go_on(listed(shards)))


def _described(family: Family) -> FamilyList.AnswerFamily:
    memory = family.memory or NOTHING_DECIDED
    states = [slot.state for slot in family.slots.values()]
    return {
        "name": family.name,
        "last_batch_id": memory.last_batch_id,
        "decided_ms": memory.decided_ms,
        "forgotten": memory.forgotten,
        "slots": len(states),
        "joined_slots": sum(state in JOINED for state in states),
        "open_slots": states.count(State.ONGOING),
        "completing_slots": sum(state in PREPARED for state in states),
    }


def _refusal(judge: Judge, operation: Operation, family: str) -> ProtocolError | None:
    """The answer to somebody who may not do this with the family, or None."""
    return judge.refusal(operation, ResourceKind.TRANSACTIONAL_ID, f"family:{family}")


def _problem(family: str, batch_id: int) -> str | None:
    if not is_family_name(family):
        return (
            f"A family's name has 1 to {MAX_FAMILY_NAME_LENGTH} letters, digits, dots, underscores and hyphens, which "
            f"{family[:MAX_FAMILY_NAME_LENGTH]!r} does not."
        )
    return None if batch_id >= 0 else f"A batch id is 0 or more, not {batch_id}."


HANDLERS = (
    serves(ApiKey.FAMILY_JOIN, 0, 0, family_join),
    serves(ApiKey.FAMILY_RENEW, 0, 0, family_renew),
    serves(ApiKey.FAMILY_DECIDE, 0, 1, family_decide),
    serves(ApiKey.FAMILY_LIST, 0, 0, family_list),
    serves(ApiKey.FAMILY_RECALL, 0, 0, family_recall),
)

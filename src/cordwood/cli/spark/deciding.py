"""The last decision about a Spark query, from the broker or the pipeline edition that made it."""

from pathlib import Path

from cordwood.administration.asking import ask
from cordwood.administration.brokers import transaction_coordinator
from cordwood.administration.connection import Connection
from cordwood.model.errors import code_name
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.families import coordinator_key
from cordwood.spark.checkpoints.owner import Owner, query_id_of, read_owner
from cordwood.spark.checkpoints.plans import Plan, without_query_name
from cordwood.spark.checkpoints.repairing import Decided
from cordwood.wire.apis import ApiKey


def decided_of(checkpoint: Path, family: str | None, connection: Connection) -> Decided:
    """The last decision about the query of a checkpoint. An edition of a pipeline keeps its own.

    `family` names the query, for a checkpoint that lost the files that name it.
    """
    if (checkpoint.parent / "edition.json").is_file():
        return _decided_by_edition(checkpoint.parent)
    owner = _owner(checkpoint, family)
    address = transaction_coordinator(connection, coordinator_key(owner.family))
    answer = ask(address, ApiKey.FAMILY_RECALL, 0, {"family": owner.family}, connection.timeout_s)
    if answer.error_code:
        raise Failure(code_name(answer.error_code), answer.error_message or f"{owner.family} cannot be looked up")
    if answer.last_batch_id < 0 and family is not None:
        raise Failure(
            "FAMILY_NOT_FOUND",
            f"the broker remembers nothing of a query {owner.family!r}",
            "`cordwood transaction families` lists the queries that the broker remembers",
            ExitCode.NOT_FOUND,
        )
    packed, _ = without_query_name(bytes(answer.plan))
    plan = Plan.unpack(packed) if packed else None
    return Decided(owner.query_id, answer.last_batch_id, bytes(answer.plan_digest), plan)


def _decided_by_edition(edition: Path) -> Decided:
    from cordwood.pipelines.definition.errors import DamagedState
    from cordwood.pipelines.editions.planned import read_kept

    try:
        kept = read_kept(edition)
    except DamagedState as damage:
        raise Failure("NOT_REPAIRABLE", str(damage)) from None
    if kept is None:
        raise Failure("PLAN_NOT_FOUND", f"{edition} has no plan: it has committed no batch", "", ExitCode.NOT_FOUND)
    return Decided(kept.query_id, kept.batch_id, kept.plan.digest, kept.plan)


def _owner(checkpoint: Path, family: str | None) -> Owner:
    if family is not None:
        # A query's id has no dots: the text before the last dot is the value of the option `family`.
        return Owner(family.rpartition(".")[2], family)
    owner = read_owner(checkpoint)
    if owner is not None:
        return owner
    query_id = query_id_of(checkpoint)
    if query_id is None:
        raise Failure(
            "QUERY_UNKNOWN",
            f"{checkpoint} does not name its query: neither 'metadata' nor 'cordwood-sink.json' can be read",
            "name the query with --family; `cordwood transaction families` lists those that the broker remembers",
            ExitCode.NOT_FOUND,
        )
    return Owner(query_id, query_id)

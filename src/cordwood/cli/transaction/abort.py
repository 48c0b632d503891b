"""`cordwood transaction abort`."""

from cordwood.cli.asking import DRY_RUN, DryRun, Yes, confirm
from cordwood.cli.options import DEFAULT_BOOTSTRAP_SERVERS, DEFAULT_TIMEOUT_S, AsJson, BootstrapServers, TimeoutSeconds
from cordwood.cli.output import print_json, remark, say
from cordwood.cli.transaction.options import TransactionalId


def abort_transaction(
    transactional_id: TransactionalId,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Abort an open transaction and fence its producer. Readers of committed records then pass the transaction.

    The transactional id of a family's slot aborts all joined slots of the family, since a batch is decided as a whole.
    """
    from cordwood.cli.connection import Connection
    from cordwood.cli.transaction.family_view import aborted as family_aborted
    from cordwood.cli.transaction.view import aborted, described
    from cordwood.model.families import slot_of

    connection = Connection(bootstrap_servers, timeout_s)
    found = described(connection, transactional_id)
    slot = slot_of(transactional_id)
    if not (yes or as_json):
        say(f"{transactional_id} is {found['state']}; its producer, id {found['producer_id']}, will be fenced")
        if slot is not None:
            say(f"all other writers that have joined family {slot.family} will be fenced, too")
    if dry_run:
        if as_json:
            print_json({"would_abort": transactional_id, "is": found["state"], "producer_id": found["producer_id"]})
        else:
            remark(DRY_RUN)
        return
    confirm("aborting", "Abort?", yes=yes, otherwise="Nothing was aborted.")
    if slot is None:
        epoch = aborted(connection, transactional_id, found["timeout_ms"])
    else:
        family_aborted(connection, slot.family)
        epoch = described(connection, transactional_id)["producer_epoch"]
    if as_json:
        print_json({"transactional_id": transactional_id, "was": found["state"], "producer_epoch": epoch})
    elif found["state"] == "Ongoing":
        say(f"{transactional_id}: aborted, and producers with an epoch below {epoch} are fenced")
    else:
        say(f"{transactional_id}: no transaction was open; producers with an epoch below {epoch} are fenced")

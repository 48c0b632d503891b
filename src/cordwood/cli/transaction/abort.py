"""`cordwood transaction abort`."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, as_dry, confirm
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
    checked_name,
)
from cordwood.cli.terminal.output import print_json, remark, say
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection
    from cordwood.administration.transaction.in_partition import Place


def abort_transaction(
    transactional_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", callback=checked_name, help="The transactional id.", show_default=False),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            callback=checked_name,
            help="Instead of an id: the topic in which a transaction hangs.",
            show_default=False,
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="The partition.", show_default=False)
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset",
            metavar="OFFSET",
            min=0,
            help="Where the transaction begins in the partition, as `transaction list --hanging` shows it.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Abort an open transaction and fence its producer. Readers of committed records then pass the transaction.

    The transactional id of a family's slot aborts all joined slots of the family, since a batch is decided as a whole.

    A transaction that no coordinator knows has no transactional id: `--topic`, `--partition` and `--start-offset` abort
    it in one partition. Such an abort is refused while a coordinator still has to end the transaction. In a cluster
    only the listener that brokers use among themselves takes it: give that listener as `--bootstrap-server`.
    """
    from cordwood.administration.transaction.in_partition import Place

    connection = connect(bootstrap_servers, timeout_s, client_config)
    if transactional_id is not None and (topic, partition, start_offset) == (None, None, None):
        _abort_by_id(connection, transactional_id, dry_run=dry_run, yes=yes, as_json=as_json)
    elif transactional_id is None and topic is not None and partition is not None and start_offset is not None:
        place = Place(topic, partition, start_offset)
        _abort_at(connection, place, dry_run=dry_run, yes=yes, as_json=as_json)
    else:
        raise Failure(
            "USAGE",
            "give a transactional id, or all of --topic, --partition and --start-offset",
            "`cordwood transaction list --hanging` shows them",
            ExitCode.USAGE,
        )


def _abort_at(connection: "Connection", place: "Place", *, dry_run: bool, yes: bool, as_json: bool) -> None:
    from cordwood.administration.transaction.in_partition import aborted_at, open_at

    opened = open_at(connection, place)
    if not (yes or as_json):
        say(
            f"the transaction of producer {opened.producer_id}, epoch {opened.producer_epoch}, will be aborted in "
            f"{place} from offset {place.start_offset} on; no coordinator has to end it"
        )
    if not dry_run:
        confirm("aborting", "Abort?", yes=yes, otherwise="Nothing was aborted.")
        aborted_at(connection, place, opened)
    if as_json:
        producer = {"producer_id": opened.producer_id, "producer_epoch": opened.producer_epoch}
        print_json({**place._asdict(), **producer, **as_dry(dry_run)})
    elif dry_run:
        remark(DRY_RUN)
    else:
        say(f"{place}: the transaction of producer {opened.producer_id} from offset {place.start_offset} on is aborted")


def _abort_by_id(connection: "Connection", transactional_id: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    from cordwood.administration.transaction.family_view import aborted as family_aborted
    from cordwood.administration.transaction.view import aborted, described
    from cordwood.model.families import slot_of

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

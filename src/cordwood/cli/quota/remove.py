"""`cordwood quota remove`."""

from typing import Annotated

import typer

from cordwood.cli.quota.named import (
    Address,
    ClientId,
    EveryAddress,
    EveryClientId,
    EveryUser,
    User,
    named_entity,
)
from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, as_dry, confirm
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, TimeoutSeconds
from cordwood.model.failure import ExitCode, Failure, near_names
from cordwood.model.quotas import text_of


def remove_quota(
    user: User = None,
    client_id: ClientId = None,
    address: Address = None,
    every_user: EveryUser = False,
    every_client_id: EveryClientId = False,
    every_address: EveryAddress = False,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--quota", metavar="QUOTA", help="Only this one: producer_byte_rate, ... Default: all.", show_default=False
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Remove the quotas of a user, a client id, both, an address or a default."""
    from cordwood.administration.access.quotas import alter, entity_as_json, quotas
    from cordwood.cli.terminal.output import print_json, remark, say

    entity = named_entity(
        user,
        client_id,
        address,
        every_user=every_user,
        every_client_id=every_client_id,
        every_address=every_address,
    )
    connection = connect(bootstrap_servers, timeout_s, client_config)
    known = quotas(connection).get(entity, {})
    removed = list(keys or known)
    missing = [key for key in removed if key not in known]
    if missing or not removed:
        what = missing[0] if missing else "quota"
        raise Failure(
            "RESOURCE_NOT_FOUND",
            f"{text_of(entity)} has no {what}",
            near_names(what, list(known)) or "`cordwood quota list` shows all quotas",
            ExitCode.NOT_FOUND,
        )
    if not dry_run:
        confirm("removing quotas", f"Remove {', '.join(removed)} of {text_of(entity)}?", yes=yes)
    alter(connection, entity, dict.fromkeys(removed), dry_run=dry_run)
    if as_json:
        gone = [] if dry_run else removed
        print_json({"entity": entity_as_json(entity), "removed": gone, **as_dry(dry_run)})
    elif dry_run:
        remark(DRY_RUN)
    else:
        say(f"{text_of(entity)}: {', '.join(removed)} removed")

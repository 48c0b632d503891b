"""`cordwood quota add`."""

from collections.abc import Mapping
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
    value_in_words,
)
from cordwood.cli.terminal.asking import DRY_RUN, DryRun, as_dry
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, TimeoutSeconds
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import size_bytes
from cordwood.model.quotas import InvalidQuota, QuotaKey, check_quota, text_of


def add_quota(
    user: User = None,
    client_id: ClientId = None,
    address: Address = None,
    every_user: EveryUser = False,
    every_client_id: EveryClientId = False,
    every_address: EveryAddress = False,
    producer_byte_rate: Annotated[
        str | None,
        typer.Option(
            "--producer-byte-rate", metavar="SIZE", help="Bytes to write in a second: 10MiB.", show_default=False
        ),
    ] = None,
    consumer_byte_rate: Annotated[
        str | None,
        typer.Option(
            "--consumer-byte-rate", metavar="SIZE", help="Bytes to read in a second: 10MiB.", show_default=False
        ),
    ] = None,
    request_percentage: Annotated[
        float | None,
        typer.Option(
            "--request-percentage",
            metavar="PERCENT",
            help="Of the broker's event loop, for requests; 100 is all of it.",
            show_default=False,
        ),
    ] = None,
    connection_creation_rate: Annotated[
        int | None,
        typer.Option(
            "--connection-creation-rate",
            metavar="N",
            help="New connections in a second, with --ip or --default-ip.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Add quotas, or change them. A quota is for each broker by itself."""
    from cordwood.administration.access.quotas import alter, entity_as_json
    from cordwood.cli.terminal.output import print_json, remark, say

    entity = named_entity(
        user,
        client_id,
        address,
        every_user=every_user,
        every_client_id=every_client_id,
        every_address=every_address,
    )
    given: Mapping[QuotaKey, float | None] = {
        QuotaKey.PRODUCER_BYTE_RATE: _bytes(producer_byte_rate),
        QuotaKey.CONSUMER_BYTE_RATE: _bytes(consumer_byte_rate),
        QuotaKey.REQUEST_PERCENTAGE: request_percentage,
        QuotaKey.CONNECTION_CREATION_RATE: connection_creation_rate,
    }
    wanted = {str(key): value for key, value in given.items() if value is not None}
    if not wanted:
        raise Failure("USAGE", "no quota is given", "--producer-byte-rate 10MiB, for example", ExitCode.USAGE)
    for key, value in wanted.items():
        try:
            check_quota(entity, key, value)
        except InvalidQuota as reason:
            raise Failure("USAGE", str(reason), "", ExitCode.USAGE) from None
    alter(connect(bootstrap_servers, timeout_s, client_config), entity, wanted, dry_run=dry_run)
    if as_json:
        print_json({"entity": entity_as_json(entity), "quotas": wanted, **as_dry(dry_run)})
        return
    for key, value in wanted.items():
        say(f"{text_of(entity)}: {key} {value_in_words(key, value)}")
    if dry_run:
        remark(DRY_RUN)


def _bytes(text: str | None) -> int | None:
    try:
        return None if text is None else size_bytes(text)
    except ValueError as reason:
        raise Failure("USAGE", str(reason), "", ExitCode.USAGE) from None

"""Whom a quota is for, and how quotas are printed."""

from typing import Annotated

import typer

from cordwood.cli.terminal.options import checked_name
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import size_in_words
from cordwood.model.quotas import Entity, InvalidQuota, Named, QuotaKey, entity_of

User = Annotated[
    str | None,
    typer.Option("--user", metavar="USER", callback=checked_name, help="For this user.", show_default=False),
]
ClientId = Annotated[
    str | None,
    typer.Option(
        "--client-id",
        metavar="ID",
        callback=checked_name,
        help="For clients with this client.id, which is of their own choice.",
        show_default=False,
    ),
]
Address = Annotated[
    str | None,
    typer.Option("--ip", metavar="ADDRESS", callback=checked_name, help="For this address.", show_default=False),
]
EveryUser = Annotated[bool, typer.Option("--default-user", help="For each user without a quota of their own.")]
EveryClientId = Annotated[
    bool, typer.Option("--default-client-id", help="For each client id without a quota of its own.")
]
EveryAddress = Annotated[bool, typer.Option("--default-ip", help="For each address without a quota of its own.")]


def named_entity(
    user: str | None,
    client_id: str | None,
    address: str | None,
    *,
    every_user: bool,
    every_client_id: bool,
    every_address: bool,
) -> Entity:
    """The entity that the options name. Raises Failure."""
    parts: list[tuple[str, str | None]] = []
    for of, name, every in (
        (Named.USER, user, every_user),
        (Named.CLIENT_ID, client_id, every_client_id),
        (Named.IP, address, every_address),
    ):
        if name is not None and every:
            raise Failure("USAGE", f"--default-{of} is for all without a name of their own", "", ExitCode.USAGE)
        if name is not None or every:
            parts.append((of, name))
    if not parts:
        raise Failure(
            "USAGE", "whom is the quota for?", "--user, --client-id, both, or --ip; or their defaults", ExitCode.USAGE
        )
    try:
        return entity_of(parts)
    except InvalidQuota as reason:
        raise Failure("USAGE", str(reason), "", ExitCode.USAGE) from None


def value_in_words(key: str, value: float) -> str:
    if key in (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE):
        return f"{size_in_words(round(value))}/s"
    return f"{value:g} %" if key == QuotaKey.REQUEST_PERCENTAGE else f"{value:g}/s"

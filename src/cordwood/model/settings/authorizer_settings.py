"""The settings of the authorizer, under Kafka's names: whether clients need rights, and who needs none."""

from dataclasses import dataclass
from typing import Final

from cordwood.model.settings.setting import Value, boolean, string

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def principals_in(text: str) -> tuple[str, ...]:
    """The principals in a list as Kafka writes it, divided by semicolons: names may have commas."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _check_principals(value: Value) -> str | None:
    for principal in principals_in(str(value)):
        kind, _, name = principal.partition(":")
        if not (kind and name):
            return f"'{principal}' is not a principal: write kind and name, as User:alice;User:bob"
    return None


@dataclass(frozen=True, init=False, repr=False, eq=False)
class AuthorizerSettings:
    """Rights of clients."""

    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether everybody may use a resource about which there is no rule. Otherwise only super users may."
    )
    authorizer_class_name: str = string(
        "",
        "The name of Kafka's authorizer switches rights on: every request needs those that docs/rights.md lists, from "
        "rules of access (`cordwood acl`). Not set: everybody may do everything.",
        choices=("", STANDARD_AUTHORIZER),
    )
    authorizer_dry_run: bool = boolean(
        False, "Refuses nothing, and logs once for each kind of refusal what would be refused."
    )
    super_users: str = string(
        "",
        "The principals that may do everything, whatever the rules say, divided by semicolons: `User:admin;User:ops`.",
        check=_check_principals,
    )

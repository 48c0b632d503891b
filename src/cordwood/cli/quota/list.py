"""`cordwood quota list`."""

from cordwood.cli.quota.named import value_in_words
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, TimeoutSeconds
from cordwood.cli.terminal.output import print_json, print_table, remark
from cordwood.model.quotas import text_of


def list_quotas(
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List all quotas, by the user, client id or address that they are for."""
    from cordwood.administration.access.quotas import entity_as_json, quotas

    found = quotas(connect(bootstrap_servers, timeout_s, client_config))
    if as_json:
        print_json([{"entity": entity_as_json(entity), "quotas": dict(each)} for entity, each in found.items()])
    elif found:
        print_table(
            ["for", "quota", "value"],
            [
                (text_of(entity), key, value_in_words(key, value))
                for entity, each in found.items()
                for key, value in each.items()
            ],
        )
    else:
        remark("No quotas yet: `cordwood quota add` adds one.")

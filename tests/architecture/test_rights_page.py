"""Every served API has an entry in the table of rights, and docs/rights.md is that table."""

from pathlib import Path

from cordwood.model.operations import ResourceKind
from cordwood.node import apis
from cordwood.node.requests.rights import LATEST, RIGHTS, rights_for
from cordwood.node.rights_reference import rights_markdown
from cordwood.wire.apis import APIS, ApiKey

PAGE = Path(__file__).parents[2] / "docs" / "rights.md"

ANYBODY = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""APIs that need no right: what they tell is the same for everybody."""
ONLY_HOLDERS = {ApiKey.RENEW_DELEGATION_TOKEN}
"""APIs that no right opens: a token says who may renew it."""


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == rights_markdown(), "run: make docs"


def test_every_api_that_a_handler_declares_has_an_entry_and_is_served() -> None:
    declared = {handler.api.key for handler in apis._DECLARED}
    assert declared - RIGHTS.keys() == set(), "node/requests/rights.py lacks these: they are not served"
    assert RIGHTS.keys() - declared == set(), "node/requests/rights.py has entries of APIs without a handler"
    assert apis.SERVED.keys() == declared


def test_every_version_of_an_api_needs_a_right_unless_anybody_may_ask() -> None:
    for key, api in apis.SERVED.items():
        for version in range(api.min_version, api.max_version + 1):
            needs_none = key in ANYBODY | ONLY_HOLDERS
            assert bool(rights_for(key, version)) != needs_none, f"{api.name} version {version}"


def test_rights_ask_for_operations_that_their_resources_have_in_versions_that_exist() -> None:
    for key, rights in RIGHTS.items():
        for right in rights:
            named = f"{APIS[key].name}: {right}"
            for operation, kind in ((right.operation, right.kind), *right.instead):
                assert operation in kind.operations, named
            assert right.versions.start <= APIS[key].max_version, named
            assert right.versions.stop == LATEST or right.versions.stop > APIS[key].min_version, named
            assert right.of or right.kind is ResourceKind.CLUSTER, named

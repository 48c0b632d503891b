"""The metadata versions that one node supports and takes for final, from its answer to ApiVersions."""

from typing import TYPE_CHECKING, NamedTuple

from cordwood.administration.asking import ask
from cordwood.client.settings import Address
from cordwood.cluster.metadata.versions import FEATURE, FIRST_VERSION, ONLY_FIRST, VersionRange
from cordwood.model.failure import ExitCode, Failure
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.message_types.api_versions import ApiVersions

_API_VERSIONS = 3
"""The first version of ApiVersions with features."""


class NodeVersions(NamedTuple):
    node_id: int
    address: Address
    supports: VersionRange | None
    """None: the node does not answer."""
    finalised: int = FIRST_VERSION
    updates_features: bool = False
    """True if the node can be asked to finalise a version."""


def node_versions(node_id: int, address: Address, timeout_s: float) -> NodeVersions:
    try:
        told = _ask(address, timeout_s)
    except Failure as failure:
        if failure.exit_code is not ExitCode.NOT_REACHABLE:
            raise
        return NodeVersions(node_id, address, None)
    # A release without features in its answer supports only the first version.
    supports = {each.name: VersionRange(each.min_version, each.max_version) for each in told.supported_features}
    return NodeVersions(
        node_id,
        address,
        supports.get(FEATURE, ONLY_FIRST),
        _finalised(told),
        any(each.api_key == ApiKey.UPDATE_FEATURES for each in told.api_keys),
    )


def finalised_version(address: Address, timeout_s: float) -> int:
    """The final version as one node knows it. Raises Failure."""
    return _finalised(_ask(address, timeout_s))


def _finalised(told: "ApiVersions.Response") -> int:
    versions = {each.name: each.max_version_level for each in told.finalized_features}
    return versions.get(FEATURE, FIRST_VERSION)


def _ask(address: Address, timeout_s: float) -> "ApiVersions.Response":
    values = {"client_software_name": "cordwood-cli", "client_software_version": "1"}
    return ask(address, ApiKey.API_VERSIONS, _API_VERSIONS, values, timeout_s)

"""The metadata versions of a cluster: those that its nodes support, and the final one, from answers to ApiVersions."""

from typing import NamedTuple

from cordwood.administration.asking import ask, first_answer
from cordwood.administration.brokers import brokers
from cordwood.administration.cluster.node_versions import NodeVersions, node_versions
from cordwood.administration.cluster.view import nodes_of
from cordwood.administration.connection import Connection
from cordwood.cluster.metadata.versions import FEATURE, FIRST_VERSION, RELEASES
from cordwood.model.errors import ErrorCode, code_name
from cordwood.model.failure import Failure
from cordwood.wire.apis import ApiKey

_UPDATE_FEATURES = 1
_UPGRADE, _SAFE_DOWNGRADE = 1, 2
_REFUSALS = {ErrorCode.FEATURE_UPDATE_FAILED, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_UPDATE_VERSION}
"""After another error, such as that of a store without a quorum, a version may be final all the same."""


class ClusterVersions(NamedTuple):
    nodes: tuple[NodeVersions, ...]

    @property
    def finalised(self) -> int:
        """The final version. A node whose metadata lags behind may report an older one."""
        return max(node.finalised for node in self.nodes)

    @property
    def release(self) -> str:
        """The first release that wrote the final version; empty: unknown."""
        return RELEASES.get(self.finalised, "")

    @property
    def newest(self) -> int:
        """The newest version that a node supports."""
        return max((node.supports.highest for node in self.nodes if node.supports is not None), default=FIRST_VERSION)


def cluster_versions(connection: Connection) -> ClusterVersions:
    """The versions of all nodes. Raises Failure if no broker answers."""
    _, (_, nodes) = first_answer(brokers(connection), lambda asked: nodes_of(asked, connection.timeout_s))
    return ClusterVersions(tuple(node_versions(node.node_id, node.address, connection.timeout_s) for node in nodes))


def finalise(found: ClusterVersions, version: int, timeout_s: float, *, validate_only: bool = False) -> None:
    """Asks the cluster to finalise a version. Raises Failure with the cluster's reason."""
    able = [node for node in found.nodes if node.updates_features]
    if not able:
        raise Failure(
            "FEATURE_UPDATE_FAILED",
            f"no node can finalise version {version}: all run a release that knows version {FIRST_VERSION} alone",
            "start the nodes with the new release first",
        )
    # The node that knows most can name the nodes that are behind.
    able.sort(key=lambda node: -1 if node.supports is None else -node.supports.highest)
    values = {
        "timeout_ms": int(timeout_s * 1000),
        "feature_updates": [
            {
                "feature": FEATURE,
                "max_version_level": version,
                "upgrade_type": _UPGRADE if version > found.finalised else _SAFE_DOWNGRADE,
            }
        ],
        "validate_only": validate_only,
    }
    _, answer = first_answer(
        [node.address for node in able],
        lambda asked: ask(asked, ApiKey.UPDATE_FEATURES, _UPDATE_FEATURES, values, timeout_s),
    )
    if answer.error_code:
        refused = answer.error_code in _REFUSALS
        raise Failure(
            code_name(answer.error_code),
            answer.error_message or "it is not finalised",
            "nothing was changed" if refused else "`cordwood cluster upgrade --dry-run` tells which version is final",
        )

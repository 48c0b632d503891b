"""Plans to finalise a version of the metadata: from then on brokers write it, and older releases are refused."""

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import METADATA_VERSION
from cordwood.cluster.metadata.versions import FEATURE, RELEASES
from cordwood.cluster.planner.registration import authority_of
from cordwood.cluster.planner.store_transactions import Plan, StoreTxn
from cordwood.cluster.stores.interface import Put, has_mod_revision, has_value
from cordwood.model.errors import ErrorCode, ProtocolError

MOST_NAMED = 5


def plan_finalising(image: ClusterImage, version: int) -> Plan | None:
    """The plan that finalises a version; None if it is finalised already.

    Raises ProtocolError if the version is lower than the finalised one, if a broker does not support it, or if a broker
    that has replicas is away: it may come back with any release.
    """
    finalised = image.metadata_version
    if version == finalised:
        return None
    if version < finalised:
        raise ProtocolError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{FEATURE} {finalised} is final: the metadata has rows that brokers of version {version} cannot read. "
            "A version can be left for a lower one only before it is finalised.",
        )
    if version > image.metadata_versions.highest:
        raise ProtocolError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Broker {image.node_id} supports {image.metadata_versions} of the metadata, not {version}.",
        )
    behind = [
        f"broker {broker_id} ({broker.metadata_versions})"
        for broker_id, broker in sorted(image.brokers.items())
        if version not in broker.metadata_versions
    ]
    if behind:
        raise ProtocolError(
            ErrorCode.FEATURE_UPDATE_FAILED,
            f"Version {version} of the metadata is not supported by {_named(behind)}: start these with "
            f"{release_of(version)} first.",
        )
    away = sorted(_with_replicas(image) - image.brokers.keys())
    if away:
        who, it, its = (f"Broker {away[0]} is away and has", "it", "its")
        if len(away) > 1:
            who, it, its = (f"Brokers {_named(list(map(str, away)))} are away and have", "them", "their")
        raise ProtocolError(
            ErrorCode.FEATURE_UPDATE_FAILED,
            f"{who} replicas: start {it} with {release_of(version)}, or move {its} replicas to other brokers.",
        )
    # No broker that was counted may come back as an older release. A registration of a broker that was never seen
    # compares the version's key; if it came just before, the controller leaves it fenced.
    unchanged = (
        has_mod_revision(METADATA_VERSION, image.metadata_version_revision),
        *(authority_of(broker_id, broker.epoch) for broker_id, broker in sorted(image.brokers.items())),
    )
    value = b"%d" % version
    commit = StoreTxn(unchanged, (Put(METADATA_VERSION, value),))
    return Plan((), commit, happened=(has_value(METADATA_VERSION, value),))


def release_of(version: int) -> str:
    """The release as text: `Cordwood 0.1.0 or later`."""
    return f"Cordwood {RELEASES[version]} or later" if version in RELEASES else "a newer release of Cordwood"


def _with_replicas(image: ClusterImage) -> set[int]:
    return {
        broker_id
        for topic in image.sorted_topics()
        for partition in topic.partitions
        for broker_id in (*partition.replicas, *partition.adding)
    }


def _named(brokers: list[str]) -> str:
    more = f" and {len(brokers) - MOST_NAMED} more" if len(brokers) > MOST_NAMED else ""
    return ", ".join(brokers[:MOST_NAMED]) + more

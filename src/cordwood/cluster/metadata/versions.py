"""The versions of formats that brokers share: rows of the metadata store, requests between brokers, and files on disk.

Brokers of two releases share a store while a cluster is upgraded. A broker registers the range of versions that it
reads and writes. The store holds the finalised version, which every broker of the cluster supports and writes. A broker
whose range excludes the finalised version must not start: it would misread rows, or write rows that others misread.

A change that brokers of an older version cannot read begins with a new version here, and is written only once that
version is finalised (`ClusterImage.metadata_version`). A field that older brokers may ignore needs no version.
"""

from typing import NamedTuple

from cordwood.model.errors import EnvironmentFailure, ErrorCode, ProtocolError

FEATURE = "cordwood.metadata.version"
"""The name of the finalised version in ApiVersions and UpdateFeatures. Kafka's `metadata.version` counts the formats of
Kafka's own metadata, and tools would show those names."""

FIRST_VERSION = 1
"""The version of stores from before versions were stored."""
SHORT_PARTITION_ROWS = 2
"""From this version on rows of partitions leave out the fields that have their default values."""
SECURITY_ROWS = 3
"""From this version on there may be rows of users, of access control lists, of quotas and of delegation tokens. A
broker of an older version would skip them, and serve everybody."""

RELEASES = {1: "builds before 0.1.0", 2: "0.1.0", 3: "0.1.0"}
"""The first release that writes each version."""


class VersionRange(NamedTuple):
    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    def __str__(self) -> str:
        if self.lowest == self.highest:
            return f"only version {self.lowest}"
        return f"versions {self.lowest} to {self.highest}"


ONLY_FIRST = VersionRange(FIRST_VERSION, FIRST_VERSION)
"""The range of brokers that registered no range."""
SUPPORTED = VersionRange(FIRST_VERSION, SECURITY_ROWS)
"""The versions that this release supports."""


class UnsupportedMetadata(EnvironmentFailure):
    """The cluster's finalised metadata version is outside of the range of this broker."""


def supported_up_to(highest: int) -> VersionRange:
    """The range of a broker whose `metadata.version.max` is `highest`; 0 is the newest. Raises UnsupportedMetadata."""
    if highest == 0:
        return SUPPORTED
    if highest not in SUPPORTED:
        raise UnsupportedMetadata(f"metadata.version.max is {highest}, and this release supports {SUPPORTED}")
    return VersionRange(SUPPORTED.lowest, highest)


def check_supported(finalised: int, supported: VersionRange) -> None:
    """Raises UnsupportedMetadata for a finalised version outside of the range."""
    if finalised in supported:
        return
    if finalised in SUPPORTED and supported.highest < SUPPORTED.highest:
        cure = "take the setting metadata.version.max away"
    elif finalised > supported.highest:
        cure = "start a newer release of Cordwood; there is no way back from a finalised version"
    else:
        cure = "start the releases in between first, each with `cordwood cluster upgrade`"
    raise UnsupportedMetadata(
        f"the cluster's metadata has version {finalised}, and this broker supports {supported}: {cure}"
    )


def check_security_rows(finalised: int, what: str) -> None:
    """Refuses rows of users, rules, quotas and tokens while a broker of an older version may be in the cluster. Raises
    ProtocolError."""
    if finalised < SECURITY_ROWS:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The cluster's metadata has version {finalised}, and {what} need {SECURITY_ROWS}: `cordwood cluster "
            "upgrade` finalises it once all brokers support it.",
        )

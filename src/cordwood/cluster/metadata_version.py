"""The versions of the metadata's rows. Brokers of two releases share a store while a cluster is upgraded.

A broker registers the range of versions that it reads and writes. The store holds the finalised version, which every
broker of the cluster supports and writes. A broker whose range excludes it must not start: it would misread rows, or
write rows that others misread.
"""

from typing import NamedTuple

from cordwood.model.errors import EnvironmentFailure

FIRST_VERSION = 1
"""The version of stores from before versions were stored."""


class VersionRange(NamedTuple):
    lowest: int
    highest: int


ONLY_FIRST = VersionRange(FIRST_VERSION, FIRST_VERSION)
"""The range of brokers that registered none."""
SUPPORTED = VersionRange(1, 1)
"""The versions that this release supports."""


class UnsupportedMetadata(EnvironmentFailure):
    """The cluster's finalised metadata version is outside of the range of this release."""


def check_supported(finalised: int, supported: VersionRange) -> None:
    """Raises UnsupportedMetadata."""
    if supported.lowest <= finalised <= supported.highest:
        return
    cure = (
        "start a newer release of Cordwood"
        if finalised > supported.highest
        else "start the releases in between first, each with an upgrade of the metadata"
    )
    raise UnsupportedMetadata(
        f"the cluster's metadata has version {finalised}, and this release of Cordwood supports versions "
        f"{supported.lowest} to {supported.highest}: {cure}"
    )

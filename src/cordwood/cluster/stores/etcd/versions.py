"""The versions of etcd that are safe for metadata."""

import re

FLOORS = {(3, 5): 28, (3, 6): 9}
"""The first safe release of each minor version. Earlier releases have stale reads after a pause, two ways around
authentication, renewals of revoked leases, watches that miss a deletion, transactions applied in part."""
FLOORS_WITH_AUTH = {(3, 5): 33, (3, 6): 14, (3, 7): 1}
"""The first safe release of each minor version if etcd checks users."""


def refusal(version: str, *, with_auth: bool) -> str | None:
    """The reason why a member of this version is refused; None if it is safe."""
    floors = FLOORS_WITH_AUTH if with_auth else FLOORS
    wanted = " or ".join(f"{major}.{minor}.{patch}" for (major, minor), patch in floors.items())
    users = " with users" if with_auth else ""
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(.*)", version)
    if found is None:
        return f"its version {version!r} is not understood; {wanted} or later is needed{users}"
    major, minor, patch = map(int, found.groups()[:3])
    floor = floors.get((major, minor), 0)
    too_old = (major, minor) < min(floors) or patch < floor or (patch == floor > 0 and found[4].startswith("-"))
    if not too_old:
        return None
    return f"etcd {version} has known faults that lose or invent metadata; {wanted} or later is needed{users}"

"""Where one syncfs may stand for many fsyncs."""

from pathlib import Path

import pytest

from cordwood.broker.machine.sync_trust import syncfs_can_be_trusted

MOUNTS = """\
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
40 22 8:1 / /data rw,relatime shared:2 - xfs /dev/sdb rw
41 40 0:50 / /data/remote rw - fuse.sshfs host: rw
42 22 0:51 / /with\\040space rw - btrfs /dev/sdc rw
43 22 0:52 / /overlaid rw - ext4 /dev/sdd rw
44 43 0:53 / /overlaid rw - overlay overlay rw
"""


@pytest.mark.parametrize(
    ("directory", "trusted"),
    [
        ("/var/lib/cordwood", True),
        ("/data/cordwood", True),
        ("/data", True),
        ("/database", True),
        ("/data/remote/cordwood", False),
        ("/proc/x", False),
        ("/with space/x", True),
        ("/overlaid/x", False),
    ],
)
def test_it_depends_on_the_filesystem_that_holds_the_directory(directory: str, trusted: bool) -> None:
    assert syncfs_can_be_trusted(directory, release="6.1.0-13-amd64", mounts=MOUNTS) is trusted


@pytest.mark.parametrize(
    ("release", "trusted"),
    [("5.8.0", True), ("5.7.19", False), ("4.19.0-26", False), ("6.18.44-fc", True), ("10.0", True), ("odd", False)],
)
def test_it_depends_on_a_kernel_that_reports_failed_writes(release: str, trusted: bool) -> None:
    assert syncfs_can_be_trusted("/data", release=release, mounts=MOUNTS) is trusted


def test_where_nothing_is_known_it_is_not_trusted() -> None:
    assert not syncfs_can_be_trusted("/data", release="6.1.0", mounts="")


def test_one_syncfs_does_not_stand_for_a_partition_on_another_disk(tmp_path: Path) -> None:
    data, other = tmp_path / "data", Path("/dev/shm")
    (data / "orders-0").mkdir(parents=True)
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second filesystem here")
    mounts = "22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw"
    assert syncfs_can_be_trusted(str(data), release="6.1.0", mounts=mounts)
    (data / "orders-1").symlink_to(other)
    assert not syncfs_can_be_trusted(str(data), release="6.1.0", mounts=mounts)

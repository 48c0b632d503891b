"""`cordwood quota` against a real broker."""

from collections.abc import Iterator

import pytest
from tests.cli.conftest import Cordwood

from cordwood.embedded import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def cli(broker: Broker) -> Iterator[Cordwood]:
    cli = Cordwood(broker.bootstrap_servers)
    yield cli
    for quota in cli.json("quota", "list"):
        options = [
            option
            for of, name in quota["entity"].items()
            for option in ([f"--default-{of}"] if name is None else [f"--{of}", name])
        ]
        cli("quota", "remove", *options, "--yes")
    assert cli.json("quota", "list") == []


def test_a_quota_is_added_listed_and_removed(cli: Cordwood) -> None:
    add = ("quota", "add", "--user", "alice", "--producer-byte-rate", "10MiB")
    set_quota = {"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 10 << 20}}
    assert cli.json(*add, "--dry-run") == {**set_quota, "dry_run": True}
    assert cli.json("quota", "list") == []
    assert cli(*add) == "user alice: producer_byte_rate 10.0 MiB/s\n"
    assert cli.json("quota", "list") == [set_quota]
    cli("quota", "add", "--user", "alice", "--request-percentage", "12.5")
    assert cli("quota", "list").splitlines()[1:] == [
        "user alice\tproducer_byte_rate\t10.0 MiB/s",
        "user alice\trequest_percentage\t12.5 %",
    ]
    remove = ("quota", "remove", "--user", "alice")
    assert cli.error(*remove)[1]["hint"] == "add --yes"
    assert cli.json(*remove, "--dry-run") == {"entity": {"user": "alice"}, "removed": [], "dry_run": True}
    assert cli(*remove, "--quota", "producer_byte_rate", "--yes") == "user alice: producer_byte_rate removed\n"
    assert cli.json(*remove, "--yes")["removed"] == ["request_percentage"]
    assert cli.json("quota", "list") == []


def test_describe_says_which_quota_holds_and_who_shares_it(cli: Cordwood) -> None:
    cli("quota", "add", "--default-user", "--default-client-id", "--consumer-byte-rate", "1MiB")
    cli("quota", "add", "--user", "alice", "--consumer-byte-rate", "2MiB")
    held = cli.json("quota", "describe", "--user", "alice", "--client-id", "app")
    assert held == {
        "divided_by": 1,
        "quotas": [
            {
                "of": {"user": "alice"},
                "quota": "consumer_byte_rate",
                "shared_by": "all clients of user alice",
                "value": 2 << 20,
            }
        ],
    }
    (held_for_bob,) = cli.json("quota", "describe", "--user", "bob", "--client-id", "app")["quotas"]
    assert held_for_bob["of"] == {"client-id": None, "user": None}
    assert held_for_bob["shared_by"] == "all connections of user bob with client id app"
    shown = cli("quota", "describe", "--client-id", "app").splitlines()
    assert shown[1].startswith("consumer_byte_rate\t1.0 MiB/s\tclient-id <default>, user <default>\t")
    assert cli.json("quota", "describe", "--ip", "10.0.0.1")["quotas"] == []


def test_an_address_has_a_rate_of_connections_and_nothing_else(cli: Cordwood) -> None:
    cli("quota", "add", "--default-ip", "--connection-creation-rate", "100")
    (held,) = cli.json("quota", "describe", "--ip", "10.0.0.1")["quotas"]
    assert (held["value"], held["of"], held["shared_by"]) == (100, {"ip": None}, "all connections from 10.0.0.1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--producer-byte-rate", "1MiB"), "whom is the quota for?"),
        (("--user", "alice"), "no quota is given"),
        (("--user", "alice", "--default-user", "--producer-byte-rate", "1"), "without a name of their own"),
        (("--user", "alice", "--producer-byte-rate", "0"), "must be greater than 0"),
        (("--user", "alice", "--producer-byte-rate", "much"), "expected a size"),
        (("--user", "alice", "--connection-creation-rate", "1"), "Invalid configuration key connection_creation_rate"),
        (("--user", "alice", "--ip", "10.0.0.1", "--producer-byte-rate", "1"), "should not be combined"),
        (("--ip", "somewhere", "--connection-creation-rate", "1"), "not an IP address"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(
    cli: Cordwood, options: tuple[str, ...], message: str
) -> None:
    assert message in cli.error("quota", "add", *options)[1]["message"]


def test_a_quota_that_is_not_there_is_not_removed(cli: Cordwood) -> None:
    code, failure = cli.error("quota", "remove", "--user", "nobody", "--yes")
    assert (code, failure["code"]) == (4, "RESOURCE_NOT_FOUND")

"""The settings of a client, checked before it connects."""

import pickle

import pytest

from cordwood.client.settings import Address, ClientSettings, parse_bootstrap


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 , b ", [("a", 1), ("b", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("PLAINTEXT://broker:9094", [("broker", 9094)]),
    ],
)
def test_bootstrap_servers_are_hosts_and_ports(text: str, addresses: list[tuple[str, int]]) -> None:
    assert list(parse_bootstrap(text)) == addresses


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected host:port"),
        (" , ", "expected host:port"),
        ("a:", "port from 1 to 65535"),
        (":9092", "port from 1 to 65535"),
        ("a:0", "port from 1 to 65535"),
        ("a:65536", "port from 1 to 65535"),
        ("a:b", "port from 1 to 65535"),
        ("::1:9092", r"\[address\]:port"),
        ("[::1", r"\[address\]:port"),
        ("SASL_SSL://a:9092", "PLAINTEXT, not SASL_SSL"),
        ("a..b:9092", "cannot be a host name"),
        ("x" * 64 + ":9092", "cannot be a host name"),
    ],
)
def test_what_is_no_address_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ClientSettings(text)


def test_settings_travel_pickled() -> None:
    settings = ClientSettings("a:1,b:2", client_id="spark", fetch_max_bytes=1)
    arrived = pickle.loads(pickle.dumps(settings))
    assert arrived == settings
    assert arrived.addresses == (Address("a", 1), Address("b", 2))


@pytest.mark.parametrize("name", ["request_timeout_ms", "fetch_max_bytes", "max_in_flight_bytes"])
def test_a_limit_of_nothing_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        ClientSettings("a:1", **{name: 0})  # type: ignore[arg-type]

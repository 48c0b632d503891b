"""Which address is bound and which one clients are told."""

import socket

import pytest

from cordwood.broker.network.listening import advertised, bind
from cordwood.cluster.metadata.rows import Endpoint
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.listeners import Listener, parse_address


def only_listener(listeners: str, advertised_listeners: str = "") -> Listener:
    texts = {"listeners": listeners, "advertised.listeners": advertised_listeners}
    (listener,) = BrokerSettings.from_texts(texts).listener_list
    return listener


def test_port_0_becomes_a_real_port_that_clients_are_told() -> None:
    with bind(parse_address("127.0.0.1:0")) as bound:
        port = bound.getsockname()[1]
        assert port > 0
        assert advertised(only_listener("127.0.0.1:0"), bound) == Endpoint("PLAINTEXT", "127.0.0.1", port)


def test_clients_are_told_what_the_settings_advertise() -> None:
    with bind(parse_address("127.0.0.1:0")) as bound:
        told = advertised(only_listener("127.0.0.1:0", "PLAINTEXT://log.example:19092"), bound)
        assert told == Endpoint("PLAINTEXT", "log.example", 19092)


@pytest.mark.parametrize("listener", [":0", "0.0.0.0:0"])
def test_every_interface_is_no_address_to_connect_to(listener: str) -> None:
    with bind(parse_address(listener)) as bound:
        told = advertised(only_listener(listener), bound)
        assert told == Endpoint("PLAINTEXT", socket.gethostname(), bound.getsockname()[1])
        bound.listen()
        with socket.create_connection(("127.0.0.1", told.port)):
            pass


def test_an_address_that_is_taken_is_named() -> None:
    with bind(parse_address("127.0.0.1:0")) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(OSError, match=rf"127\.0\.0\.1:{port}"):
            bind(parse_address(f"127.0.0.1:{port}"))


def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(OSError, match=r"no\.such\.host\.invalid"):
        bind(parse_address("no.such.host.invalid:9092"))

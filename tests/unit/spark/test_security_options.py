"""The options of a connection's security: those of Spark's connector, for reads and writes alike."""

import pickle
import re
from pathlib import Path

import pytest

from cordwood.client.settings import ClientSettings
from cordwood.security.connection_settings import ClientLogIn, ClientTls, Security
from cordwood.spark.options.security import SECURITY_KEYS
from cordwood.spark.sink.options import SinkOptionError, parse_sink_options
from cordwood.spark.source.options import OptionsError, read_options

PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
SECURE = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-256",
    "kafka.sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" '
    'password="s3cret";',
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": "ca.pem",
}
ALICE = Security(ClientTls("ca.pem"), ClientLogIn("SCRAM-SHA-256", "alice", "s3cret"))


def clients(options: dict[str, str]) -> list[ClientSettings]:
    """The settings of all clients of a read and of a write."""
    servers = {"kafka.bootstrap.servers": "localhost:9092"}
    read = read_options({**servers, "subscribe": "orders", **options}, streaming=True)
    write = parse_sink_options({**servers, "topic": "orders", **options}, streaming=True)
    return [read.client, read.fetching, write.client]


def test_every_client_of_a_read_and_of_a_write_gets_the_security() -> None:
    assert [client.security for client in clients(SECURE)] == [ALICE] * 3
    own = {f"kafka.{name}": value for name, value in ALICE.for_librdkafka().items()}
    assert [client.security for client in clients(own)] == [ALICE] * 3


def test_the_options_travel_and_show_no_secret() -> None:
    read = read_options({"kafka.bootstrap.servers": "a:1", "subscribe": "orders", **SECURE}, streaming=True)
    write = parse_sink_options({"kafka.bootstrap.servers": "a:1", **SECURE}, streaming=True)
    assert pickle.loads(pickle.dumps(read)) == read
    assert "s3cret" not in f"{read} {write} {read!r} {write!r}"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"kafka.ssl.truststore.type": "JKS"}, "keytool -list -rfc -keystore ca.pem"),
        ({"kafka.sasl.mechanism": "GSSAPI"}, "'GSSAPI' is not taken"),
        ({"kafka.security.protocol": "PLAINTEXT"}, "has no effect with security.protocol=PLAINTEXT"),
        ({"kafka.sasl.pasword": "s3cret"}, "kafka.sasl.password"),
        ({"kafka.sasl.jaas.config": "s3cret"}, "sasl.jaas.config is not one log-in"),
    ],
)
def test_what_is_wrong_is_said_by_both_halves_without_the_secret(given: dict[str, str], reason: str) -> None:
    for failure, half in ((OptionsError, 0), (SinkOptionError, 1)):
        options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", **SECURE, **given}
        with pytest.raises(failure, match=re.escape(reason)) as refused:
            read_options(options, streaming=True) if half == 0 else parse_sink_options(options, streaming=True)
        assert "s3cret" not in str(refused.value)


def test_a_client_of_javas_own_settings_is_told_what_has_no_effect() -> None:
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders", "kafka.ssl.protocol": "TLSv1.3"}
    for warnings in (
        read_options(options, streaming=True).warnings,
        parse_sink_options(options, streaming=True).warnings,
    ):
        assert [warning for warning in warnings if warning.startswith("kafka.ssl.protocol has no effect: TLS is")]


@pytest.mark.parametrize("name", sorted(SECURITY_KEYS))
def test_an_option_is_in_the_documentation(name: str) -> None:
    assert re.search(rf"^\| [^|]*`kafka\.{re.escape(name)}`[^|]* \|", PAGE, re.MULTILINE)

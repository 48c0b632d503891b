"""Kafka's text for a log-in, read and written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.model.jaas import SCRAM_MODULE, LogIn, jaas, parse_jaas

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(user=texts, password=texts)
def test_what_is_written_is_read_again(user: str, password: str) -> None:
    assert parse_jaas(jaas(user, password)) == (user, password)


@pytest.mark.parametrize(
    "text",
    [
        f'{SCRAM_MODULE} required username="broker" password="a secret";',
        f"  {SCRAM_MODULE}   required \\n password='a secret'\n  username=broker ;\n".replace("\\n", "\n"),
    ],
)
def test_forms_that_java_takes(text: str) -> None:
    assert parse_jaas(text) == LogIn("broker", "a secret")
    assert "secret" not in repr(parse_jaas(text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'{SCRAM_MODULE} required username="broker" password="secret"', "of the form"),
        (f'{SCRAM_MODULE} optional username="broker" password="secret";', "of the form"),
        (f'{SCRAM_MODULE} required username="broker" password="secret;', "of the form"),
        (f'{SCRAM_MODULE} required username="broker";', "a username and a password"),
        (f'{SCRAM_MODULE} required username="" password="secret";', "a username and a password"),
        ('org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="secret";', "module"),
        ("", "of the form"),
    ],
)
def test_other_texts_are_refused_without_a_word_of_them(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        parse_jaas(text)
    assert "secret" not in str(refused.value)

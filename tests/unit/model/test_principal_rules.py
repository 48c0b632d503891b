"""From the subject of a certificate to the name of a user, as Apache Kafka does (KIP-371)."""

import pytest

from cordwood.model.settings.principal_rules import PrincipalRules, check_rules

ALICE = "CN=Alice,OU=Sawmill,O=Woods,C=CA"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", ALICE, ALICE),
        ("RULE:^CN=([^,]+),.*$/$1/", ALICE, "Alice"),
        ("RULE:^CN=([^,]+),.*$/$1/L", ALICE, "alice"),
        ("RULE:^CN=([^,]+),.*$/$1/U", ALICE, "ALICE"),
        ("RULE:^CN=([^,]+),OU=([^,]+),.*$/$2.$1@woods/L", ALICE, "sawmill.alice@woods"),
        ("RULE:^CN=Bob.*$/bob/, RULE:^CN=(.*?),.*$/$1/ , DEFAULT", ALICE, "Alice"),
        ("RULE:^CN=Bob$/bob/,DEFAULT", ALICE, ALICE),
        ("RULE:CN=Al/no/,DEFAULT", ALICE, ALICE),
        (r"RULE:^CN=(\w+)\/(\w+)$/$1\/$2/", "CN=kafka/host1", "kafka/host1"),
        ("RULE:^CN=(.*?),.*$/$1$7/", ALICE, "Alice$7"),
        (r"RULE:^CN=(.*?),.*$/\$1/", ALICE, "$1"),
        ("RULE:^CN=(.*?),.*$/$0/", ALICE, ALICE),
        ("RULE:^CN=Bob$/bob/", ALICE, None),
    ],
)
def test_the_first_rule_that_matches_the_whole_subject_holds(rules: str, subject: str, name: str | None) -> None:
    assert check_rules(rules) is None
    assert PrincipalRules(rules).name_of(subject) == name


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("", "must have a rule"),
        ("CN=alice", "must begin with DEFAULT or with RULE:PATTERN/REPLACEMENT/"),
        ("RULE:^CN=(.*)$", "must begin with"),
        ("RULE:^CN=(.*$/$1/", "is no regular expression"),
        ("DEFAULT RULE:a/b/", "must begin with"),
        ("RULE:a/b/X", "must begin with"),
    ],
)
def test_a_text_that_is_no_list_of_rules_is_refused_with_the_reason(rules: str, reason: str) -> None:
    assert reason in (check_rules(rules) or "")

"""`ssl.principal.mapping.rules`: from the subject of a client's certificate to the name of its user (KIP-371).

A rule is `DEFAULT`, which keeps the subject as it is, or `RULE:PATTERN/REPLACEMENT/`, with an `L` or `U` behind it for
lower or upper case. The first rule whose pattern matches the whole subject holds. `$1` in a replacement is the first
group of the pattern; `\\/` is a slash. The patterns are Python's regular expressions, which differ from Java's in few
places.
"""

import re
from typing import Final, NamedTuple

from cordwood.model.settings.setting import Value

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|\n|$)"
)
_IN_REPLACEMENT: Final = re.compile(r"\\(?P<literal>.)|\$(?P<group>\d+)", re.DOTALL)


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None: the rule DEFAULT."""
    replacement: str
    case: str

    def apply(self, subject: str) -> str | None:
        """The name; None if the rule does not match."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        # As Kafka does: the pattern is replaced wherever it is found, not only once.
        name = self.pattern.sub(self._filled_in, subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _filled_in(self, match: re.Match[str]) -> str:
        def value(found: re.Match[str]) -> str:
            if found["literal"] is not None:
                return found["literal"]
            digits = found["group"]
            if int(digits) > match.re.groups:
                return found[0]
            return match[int(digits)] or ""

        return _IN_REPLACEMENT.sub(value, self.replacement)


class PrincipalRules:
    """The rules of one listener, in their order."""

    def __init__(self, text: str) -> None:
        """Raises ValueError with the reason for a text that is no list of rules."""
        self._rules = list(_parsed(text))

    def name_of(self, subject: str) -> str | None:
        """The name of the user with this subject; None if no rule matches."""
        return next((name for rule in self._rules if (name := rule.apply(subject)) is not None), None)


def _parsed(text: str) -> list[_Rule]:
    rules = []
    place = 0
    while place < len(text):
        found = _RULE.match(text, place)
        if found is None:
            raise ValueError(
                f"{text[place:]!r} must begin with DEFAULT or with RULE:PATTERN/REPLACEMENT/, then a comma"
            )
        place = found.end()
        if found["default"]:
            rules.append(_Rule(None, "", ""))
            continue
        try:
            pattern = re.compile(found["pattern"].replace("\\/", "/"))
        except re.error as error:
            raise ValueError(f"{found['pattern']!r} is no regular expression: {error}") from None
        rules.append(_Rule(pattern, found["replacement"], found["case"]))
    if not rules:
        raise ValueError("must have a rule: DEFAULT keeps the subject of the certificate")
    return rules


def check_rules(value: Value) -> str | None:
    """The reason why a text is refused, or None."""
    try:
        PrincipalRules(str(value))
    except ValueError as error:
        return str(error)
    return None

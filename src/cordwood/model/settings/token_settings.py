"""The settings of delegation tokens, under Kafka's names, but for the file of the secret key."""

from dataclasses import dataclass
from typing import Final

from cordwood.model.settings.setting import int64, string

TOKEN_KEY_FILE: Final = "delegation.token.secret.key.file"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class DelegationTokenSettings:
    """Tokens by which a program logs in as the user that had them made."""

    delegation_token_expiry_check_interval_ms: int = int64(
        3_600_000,
        "How often tokens that are over are removed from the metadata. Nobody logs in by such a token meanwhile.",
        low=1,
    )
    delegation_token_expiry_time_ms: int = int64(
        86_400_000, "A delegation token is over after this time, unless it is renewed before.", low=1
    )
    delegation_token_max_lifetime_ms: int = int64(
        604_800_000, "A delegation token is over after this time, however often it is renewed.", low=1
    )
    delegation_token_secret_key_file: str = string(
        "",
        "The file with the secret key of delegation tokens, the same on all brokers: 32 to 1,024 bytes of text, as "
        "`openssl rand -base64 32` makes it. A line feed at its end does not count. Not set: there are no delegation "
        "tokens. A broker with another key than the cluster's is refused at its start.",
    )

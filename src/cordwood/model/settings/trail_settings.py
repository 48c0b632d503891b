"""The settings of the security trail: who changed what, and who was refused."""

from dataclasses import dataclass
from typing import Final

from cordwood.model.settings.setting import int32, int64, string

AUTOMATIC: Final = "auto"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class TrailSettings:
    """The file of the trail, and what it keeps."""

    security_trail_directory: str = string(
        "",
        "The directory of the security trail; each broker writes a file of its own, `broker-ID.jsonl`. Not set: "
        "`security-trail` in the first data directory.",
    )
    security_trail_enable: str = string(
        AUTOMATIC,
        "Whether the broker writes a security trail: every change of topics, groups, settings, rules, users and the "
        "cluster, every log-in, and every refusal, with who asked from where, as JSON lines in OCSF's classes "
        "(docs/security/trail.md). `auto`: if there is an authorizer, or a listener with SASL.",
        choices=(AUTOMATIC, "true", "false"),
    )
    security_trail_file_bytes: int = int64(
        67_108_864, "The size at which the file of the security trail is renamed, and a new one begun.", low=1024
    )
    security_trail_files: int = int32(
        10, "The renamed files that are kept, `broker-ID.jsonl.1` the newest of them.", low=1, high=1000
    )
    security_trail_window_ms: int = int64(
        60_000,
        "Repeated refusals and log-ins with the same principal, host, operation and kind of resource: the first is a "
        "line of the security trail, the others of this time are one line with their count.",
        low=10,
    )

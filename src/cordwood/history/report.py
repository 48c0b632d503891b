"""The verdict: findings in words and as JSON.

`Report.render()` is for people, `Report.to_json()` for scripts; both name the anomaly, partition, offset, value, client
and time of every finding, tell their number when not all are listed, and tell which demands were dropped and why.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from cordwood.history.anomalies import Anomaly
from cordwood.history.observations import Totals


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly. Offset, value, client and time are None if no single line of the history has them."""

    anomaly: Anomaly
    topic: str
    partition: int
    offset: int | None
    value: str | None
    who: str | None
    at_ms: float | None
    sentence: str

    def __str__(self) -> str:
        return f"{self.anomaly}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check. `counts` counts all suspects, `findings` lists the first of each kind."""

    findings: tuple[Finding, ...]
    counts: Mapping[Anomaly, int]
    totals: Totals
    notes: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not self.counts

    def to_json(self) -> str:
        return json.dumps(
            {
                "clean": self.clean,
                "totals": asdict(self.totals),
                "counts": {str(anomaly): count for anomaly, count in self.counts.items()},
                "findings": [{**asdict(finding), "anomaly": str(finding.anomaly)} for finding in self.findings],
                "notes": list(self.notes),
            },
            ensure_ascii=False,
            indent=2,
        )

    def render(self) -> str:
        totals = self.totals
        lines = [
            f"{totals.events:,} events: {totals.producers} producers sent {totals.sends:,} records "
            f"({totals.acked:,} acknowledged, {totals.failed:,} failed, {totals.unknown:,} unknown), "
            f"{totals.readers} readers read {totals.records_read:,}, {totals.transactions:,} transactions, "
            f"{totals.partitions:,} partitions."
        ]
        if self.clean:
            lines.append("No anomaly found.")
        else:
            lines.append(
                "Anomalies: " + ", ".join(f"{count:,} {anomaly}" for anomaly, count in self.counts.items()) + "."
            )
            lines.extend(f"  {finding}" for finding in self.findings)
            listed = len(self.findings)
            total = sum(self.counts.values())
            if total > listed:
                lines.append(f"  ... and {total - listed:,} more that are not listed.")
        lines.extend(f"Note: {note}" for note in self.notes)
        return "\n".join(lines)

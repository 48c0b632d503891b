"""The checker: one pass to observe, a judgement, and a second pass for the evidence if there are suspects."""

from collections import Counter

from cordwood.history.anomalies import Anomaly, Suspect, suspects_in
from cordwood.history.evidence import Evidence, findings_of
from cordwood.history.observations import Observations
from cordwood.history.report import Finding, Report
from cordwood.history.source import HistoryLike, Source
from cordwood.model.identifiers import TopicPartition

LISTED_PER_ANOMALY = 50


def check(*histories: HistoryLike, listed_per_anomaly: int = LISTED_PER_ANOMALY) -> Report:
    """Judges a history: a path, or events. Histories of several processes are merged by their clocks.

    Raises InvalidHistory if the history breaks the rules of its format, OSError if it cannot be read. Memory is about
    25 bytes per offset seen plus the records in flight, not the size of the history.
    """
    source = Source(histories)
    seen = Observations()
    seen.read(source)
    counts: Counter[Anomaly] = Counter()
    listed: list[Suspect] = []
    for suspect in suspects_in(seen):
        counts[suspect.anomaly] += 1
        if counts[suspect.anomaly] <= listed_per_anomaly:
            listed.append(suspect)
    findings: list[Finding] = []
    if listed:
        evidence = Evidence(seen, listed)
        evidence.gather(source)
        findings = list(findings_of(listed, evidence))
        confirmed = Counter(finding.anomaly for finding in findings)
        suspected = Counter(suspect.anomaly for suspect in listed)
        counts -= suspected - confirmed
    order = list(Anomaly)
    return Report(
        findings=tuple(sorted(findings, key=lambda finding: order.index(finding.anomaly))),
        counts={anomaly: counts[anomaly] for anomaly in order if counts[anomaly]},
        totals=seen.totals,
        notes=tuple(_notes(seen, source)),
    )


def _notes(seen: Observations, source: Source) -> list[str]:
    notes = [
        f"{place} is half a line, as a killed recorder leaves it: ignored." for place in sorted(source.torn_places)
    ]
    if any(producer.acks == "0" for producer in seen.producers):
        notes.append("Nothing is demanded of records sent with acks=0: they may be lost without a word.")
    undrained: list[str] = []
    for name, topic in sorted(seen.topics.items()):
        for number, observed in sorted(topic.partitions.items()):
            if observed.leader_lost_at:
                notes.append(
                    f"{TopicPartition(name, number)} lost its leader: "
                    "records sent with acks=1 before that are not demanded."
                )
            if observed.last_acked_at > max((drain.until for drain in observed.drains), default=0):
                undrained.append(str(TopicPartition(name, number)))
    if undrained:
        notes.append(
            "No reader drained "
            + ", ".join(undrained[:10])
            + (f" and {len(undrained) - 10} more" if len(undrained) > 10 else "")
            + " after the last acknowledgement: records behind the last read are not demanded there."
        )
    return notes

"""The history checker: records what clients did and saw, and judges it.

    with Recorder("run.jsonl") as recorder: ...      # record from any client
    report = check("run.jsonl")                      # judge
    print(report.render())

The format and the anomalies are in docs/history.md. Works on any Kafka-compatible broker.
"""

from cordwood.history.anomalies import Anomaly
from cordwood.history.check import check
from cordwood.history.events import InvalidHistory
from cordwood.history.recorder import ProducerRecorder, ReaderRecorder, Recorder
from cordwood.history.report import Finding, Report

__all__ = [
    "Anomaly",
    "Finding",
    "InvalidHistory",
    "ProducerRecorder",
    "ReaderRecorder",
    "Recorder",
    "Report",
    "check",
]

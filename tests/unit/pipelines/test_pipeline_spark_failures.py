"""The reason of a failure, found in Spark's text around it."""

import pytest

from cordwood.pipelines.process.spark_failures import as_told, reason_of
from cordwood.spark.sink.protocol import NO_TOPIC

OF_THE_PLANNER = """[STREAM_FAILED] Query [id = 9049, runId = a6d8] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform initialOffset: \
Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 84, in initial_offset_func
    offset = reader.initialOffset()
             ^^^^^^^^^^^^^^^^^^^^^^
cordwood.spark.source.data_loss.DataLoss: The query cannot read all that it should.
t-0: offsets 5 to 19 (15 offsets): records were removed.
To go on without these records, set failOnDataLoss=false.
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 9049, runId = a6d8]
"""
OF_A_TASK = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
Traceback (most recent call last):
  File "pipeline.py", line 7, in halve
    raise ValueError("odd")
ValueError: odd

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            OF_THE_PLANNER,
            "DataLoss: The query cannot read all that it should. t-0: offsets 5 to 19 (15 offsets): records were "
            "removed. To go on without these records, set failOnDataLoss=false.",
        ),
        (OF_A_TASK, "ValueError: odd"),
        ("Traceback (most recent call last):\n  File", "RuntimeError: Traceback (most recent call last):"),
        ("[SOMETHING] is wrong\nwith the plan", "RuntimeError: [SOMETHING] is wrong"),
        ("", "RuntimeError: "),
    ],
)
def test_what_was_raised_in_python_is_the_reason(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason


def test_a_topic_that_vanished_is_told_without_options_of_the_sink() -> None:
    text = (
        "Traceback (most recent call last):\n  File 'task.py'\ncordwood.spark.sink.protocol.SinkFailure: "
        f"Topic 'price.quarantine' {NO_TOPIC} 10000 ms (kafka.max.block.ms): create it, or let the broker do so "
        "(createTopics=true)\n"
    )
    told = as_told(RuntimeError(text), "price", "v1", "price.py")
    assert told.words["message"] == (
        "the topic price.quarantine, which price writes, was deleted while a batch was under way"
    )
    assert told.words["hint"].startswith("`cordwood topic create price.quarantine` makes an empty one")
    assert not told.is_final

"""A query's checkpoint on this machine: read, made durable, compared with the decided batches, and repaired.

Spark never syncs a checkpoint: after a power cut its files may be gone, empty or older than the query's outputs. This
package knows the layout of a checkpoint, and nothing of sinks:

    metadata            {"id": "…"}: the query's id
    offsets/<batch>     the plan of a batch: a version line, Spark's settings, then a line for each source
    commits/<batch>     there once the batch is done
    sources/, state/    what sources and stateful operators keep
"""

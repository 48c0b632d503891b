"""The views of a data directory, as tables and as JSON."""

import os
from typing import Any

import typer

from cordwood.cli.terminal.output import print_json, print_json_line, print_table, remark, say
from cordwood.cli.terminal.record_text import bytes_as_json, readable
from cordwood.log.inspection.batches import batches_in, records_from
from cordwood.log.inspection.directory import DataDirectoryView, Partition, last_offsets
from cordwood.log.inspection.producers import producers_of
from cordwood.log.inspection.verify import MEANINGS, Kind, Problem, verify
from cordwood.model.failure import ExitCode
from cordwood.model.quantities import count_in_words, size_in_words
from cordwood.model.timestamps import time_in_words


def overview(data: DataDirectoryView, *, as_json: bool) -> None:
    rows = [_overview_row(read) for read in data.partitions]
    if as_json:
        print_json(rows + [_overview_row(read) for read in data.set_aside])
        return
    if rows:
        _overview_table(data.partitions, rows)
    else:
        remark("No partitions.")
    if data.set_aside:
        _set_aside_table(data)
    if rows and not data.stopped_cleanly:
        remark("The broker was not stopped cleanly: its next start checks everything above the recovery points.")


def _overview_row(read: Partition) -> dict[str, Any]:
    return {
        "partition": str(read.partition),
        "segments": len(read.segments),
        "start_offset": read.start_offset,
        "end_offset": max((end for _, _, end in last_offsets(read)), default=read.start_offset),
        "recovery_point": read.recovery_point,
        "size_bytes": read.size_bytes,
        "directory": os.path.basename(read.directory),
        "set_aside": read.set_aside,
    }


def _set_aside_table(data: DataDirectoryView) -> None:
    rows = [_overview_row(read) for read in data.set_aside]
    print_table(
        ["set aside", "partition", "start", "end", "size", "why"],
        [
            (
                row["directory"],
                row["partition"],
                row["start_offset"],
                row["end_offset"],
                size_in_words(row["size_bytes"]),
                row["set_aside"],
            )
            for row in rows
        ],
    )
    remark("Partitions that are set aside are kept and not served: `cordwood recover put-back` puts them back.")


def _overview_table(partitions: list[Partition], rows: list[dict[str, Any]]) -> None:
    print_table(
        ["partition", "segments", "start", "end", "recovery point", "size"],
        [
            (
                row["partition"],
                row["segments"],
                row["start_offset"],
                row["end_offset"],
                row["recovery_point"],
                size_in_words(read.size_bytes),
            )
            for row, read in zip(rows, partitions, strict=True)
        ],
    )


def partition(read: Partition, *, as_json: bool) -> None:
    segments = [
        {
            "base_offset": segment.base_offset,
            "end_offset": end,
            "batches": count,
            "size_bytes": segment.size_bytes,
            "index_entries": segment.index_entries,
            "time_index_entries": segment.time_index_entries,
        }
        for segment, count, end in last_offsets(read)
    ]
    epochs = [] if read.leader_epochs is None else [entry._asdict() for entry in read.leader_epochs.entries]
    facts = {
        "partition": str(read.partition),
        "topic_id": read.topic_id_text,
        "start_offset": read.start_offset,
        "recovery_point": read.recovery_point,
        "log_start_offset": read.log_start_offset,
        "cleaned_to": read.cleaned_to,
        "leader_epochs": epochs,
        "producer_snapshots": read.snapshots,
        "leftovers": read.leftovers,
    }
    if as_json:
        print_json({**facts, "segments": segments})
        return
    say(f"{read.partition}  topic id {facts['topic_id'] or '-'}, {size_in_words(read.size_bytes)}")
    print_table(
        ["base offset", "end", "batches", "size", "index entries", "time index entries"],
        [
            (
                row["base_offset"],
                row["end_offset"],
                row["batches"],
                size_in_words(row["size_bytes"] or 0),
                row["index_entries"],
                row["time_index_entries"],
            )
            for row in segments
        ],
    )
    print_table(
        ["checkpoint", "offset"],
        [
            ("recovery point: all below is fsynced", read.recovery_point),
            ("log start: readers begin here", read.log_start_offset),
            ("cleaner: compacted up to here", read.cleaned_to),
            *((f"leader epoch {entry['epoch']} begins", entry["start_offset"]) for entry in epochs),
            *(("producer snapshot", offset) for offset in read.snapshots),
        ],
    )
    for name in read.leftovers:
        remark(f"left by an interrupted deletion or compaction: {name}")


def verification(data: DataDirectoryView, chosen: list[Partition], *, as_json: bool) -> None:
    """Verifies partitions, shows the problems, and exits with PROBLEM_FOUND if there is one."""
    results = [(read, verify(read)) for read in chosen]
    found: list[dict[str, Any]] = [
        _problem_as_json(None, Problem(Kind.DERIVED, path, None, None, reason)) for path, reason in data.unreadable
    ]
    for read, result in results:
        found.extend(_problem_as_json(str(read.partition), problem) for problem in result.problems)
    batch_count = sum(result.batches for _, result in results)
    record_count = sum(result.records for _, result in results)
    if as_json:
        print_json(
            {"partitions": len(results), "batches": batch_count, "records": record_count, "problems": found},
        )
    else:
        for problem in found:
            say(f"{problem['kind']}: {problem['partition'] or data.path}{_offsets_in_words(problem)}")
            say(f"  {problem['file']}: {problem['what']}")
            say(f"  {MEANINGS[Kind(problem['kind'])]}")
        checked = ", ".join(
            count_in_words(count, noun) for count, noun in ((len(results), "partition"), (record_count, "record"))
        )
        batches_checked = f"{batch_count:,} {'batch' if batch_count == 1 else 'batches'}"
        verdict = count_in_words(len(found), "problem") if found else "all is well"
        say(f"{checked} in {batches_checked} verified: {verdict}")
    if found:
        raise typer.Exit(ExitCode.PROBLEM_FOUND)


def _problem_as_json(partition: str | None, problem: Problem) -> dict[str, Any]:
    return {
        "partition": partition,
        "kind": problem.kind.value,
        "file": problem.file,
        "offset": problem.offset,
        "end_offset": problem.end_offset,
        "what": problem.what,
    }


def _offsets_in_words(problem: dict[str, Any]) -> str:
    first, end = problem["offset"], problem["end_offset"]
    if first is None:
        return ""
    if end is None:
        return f", offset {first} and all that follow"
    return f", offset {first}" if end - first == 1 else f", offsets {first} to {end - 1}"


def batches(chosen: list[Partition], from_offset: int, limit: int | None, *, as_json: bool) -> None:
    rows = []
    for found in batches_in(chosen, from_offset, limit):
        read, header = found.partition, found.header
        row = {
            "partition": str(read.partition),
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "records": header.record_count,
            "position": found.position,
            "size_bytes": header.size,
            "codec": found.codec,
            "timestamp_ms": header.max_timestamp,
            "leader_epoch": header.partition_leader_epoch,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "transactional": header.transactional,
            "control": header.control,
        }
        if as_json:
            print_json_line(row)
        else:
            kind = "control" if header.control else "transactional" if header.transactional else ""
            producer = f"{header.producer_id}/{header.producer_epoch}" if header.producer_id >= 0 else None
            rows.append(
                (
                    str(read.partition),
                    f"{header.base_offset}-{header.last_offset}",
                    header.record_count,
                    header.size,
                    row["codec"],
                    time_in_words(header.max_timestamp),
                    header.partition_leader_epoch,
                    producer,
                    header.base_sequence if producer is not None else None,
                    kind,
                )
            )
    if not as_json:
        print_table(
            ["partition", "offsets", "records", "bytes", "codec", "latest", "epoch", "producer", "sequence", "kind"],
            rows,
        )


def records(chosen: list[Partition], from_offset: int, limit: int | None, *, as_json: bool) -> None:
    for read, control, record in records_from(chosen, from_offset, limit):
        if as_json:
            print_json_line(
                {
                    "topic": read.partition.topic,
                    "partition": read.partition.partition,
                    "offset": record.offset,
                    "timestamp_ms": record.timestamp_ms,
                    "key": bytes_as_json(record.key),
                    "value": bytes_as_json(record.value),
                    "headers": [[name, bytes_as_json(value)] for name, value in record.headers],
                    "control": control,
                }
            )
        else:
            headers = ",".join(f"{name}={readable(value)}" for name, value in record.headers) or "-"
            when = time_in_words(record.timestamp_ms)
            fields = [str(read.partition), str(record.offset), when, readable(record.key), headers]
            typer.echo("\t".join([*fields, readable(record.value)]))


def producers(chosen: list[Partition], *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    for read in chosen:
        snapshot_offset, known = producers_of(read)
        rows.extend(
            {
                "partition": str(read.partition),
                "producer_id": view.producer_id,
                "epoch": view.epoch,
                "last_sequence": view.last_sequence,
                "last_offset": view.last_offset,
                "last_timestamp_ms": view.last_timestamp_ms,
                "open_transaction_from": view.open_transaction_from,
                "snapshot_offset": snapshot_offset,
            }
            for view in known
        )
    if as_json:
        print_json(rows)
    elif not rows:
        remark("No idempotent producer is known.")
    else:
        print_table(
            ["partition", "producer", "epoch", "last sequence", "last offset", "last seen", "open transaction from"],
            [
                (
                    row["partition"],
                    row["producer_id"],
                    row["epoch"],
                    row["last_sequence"],
                    row["last_offset"],
                    time_in_words(row["last_timestamp_ms"]),
                    row["open_transaction_from"],
                )
                for row in rows
            ],
        )

"""Points an open log at its copy in another directory: the last step of a move (directory/moving.py).

The copy has the same bytes, all durable. Slices of the old files may be on their way to sockets: these files keep their
handles, and get the paths of the condemned directory.
"""

from collections.abc import Mapping

from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.partition_directory import DescribeTopic
from cordwood.log.parts.segments import LogSegments
from cordwood.segments.filesystem import File, Filesystem
from cordwood.segments.names import Suffix, segment_file_name


def relocate(
    segments: LogSegments,
    offsets: LogOffsets,
    filesystem: Filesystem,
    path: str,
    files: Mapping[int, File],
    describe_topic: DescribeTopic,
    condemned: str | None,
) -> list[File]:
    """Gives each segment its file in `files`, by base offset. The caller has voided earlier tickets, as a cut does.
    Returns the old files."""
    segments.give_back_reserve()
    old = list(segments.files())
    for file in old:
        if condemned is not None:
            file.path = f"{condemned}/{file.path.rpartition('/')[2]}"
    # The files that wait for their removal are removed with the condemned directory.
    segments.deletions = []
    for segment in segments:
        file = files[segment.base_offset]
        file.path = f"{path}/{segment_file_name(segment.base_offset, Suffix.LOG)}"
        segment.filesystem, segment.directory, segment.file = filesystem, path, file
    segments.directory.relocate(filesystem, path, describe_topic)
    offsets.durable_end = offsets.end
    if segments.active is not None and segments.settings.preallocate:
        segments.active.file.reserve(segments.segment_bytes)
    return old

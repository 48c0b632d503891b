"""The writers of decoded records: the producer fields of their batches, one row for each record."""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cordwood.columnar import decode_kernels as kernels
from cordwood.columnar.columns import Origin
from cordwood.records.batch import CONTROL_BIT, HEADER_SIZE, TRANSACTIONAL_BIT

if TYPE_CHECKING:
    from cordwood.columnar.compiled import Bytes, Longs

_FIELDS = np.dtype(
    {
        "names": ["producer_id", "producer_epoch", "base_sequence"],
        "formats": [">i8", ">i2", ">i4"],
        "offsets": [43, 51, 53],
        "itemsize": HEADER_SIZE,
    }
)


def origin_of(wire: "Bytes", batches: "Longs", offsets: "Longs") -> Origin:
    """The origin of records, from the headers of their batches."""
    headers = np.lib.stride_tricks.sliding_window_view(wire, HEADER_SIZE)[batches[:, kernels.POSITION]]
    fields = np.ascontiguousarray(headers).view(_FIELDS)[:, 0]
    of_batch = np.searchsorted(batches[:, kernels.BASE_OFFSET], offsets, side="right") - 1
    base_sequence = fields["base_sequence"][of_batch].astype(np.int64)
    counted = (base_sequence + offsets - batches[of_batch, kernels.BASE_OFFSET]) & 0x7FFF_FFFF
    attributes = batches[of_batch, kernels.ATTRIBUTES]
    return Origin(
        producer_id=pa.array(fields["producer_id"][of_batch].astype(np.int64)),
        producer_epoch=pa.array(fields["producer_epoch"][of_batch].astype(np.int32)),
        sequence=pa.array(np.where(base_sequence < 0, -1, counted).astype(np.int32)),
        transactional=pa.array(attributes & TRANSACTIONAL_BIT != 0),
        control=pa.array(attributes & CONTROL_BIT != 0),
    )

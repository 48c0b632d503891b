"""Record batches to Arrow columns and back, in numba: no Python object per record. The only home of numba."""

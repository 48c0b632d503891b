"""The file formats of a partition: segments, their indexes, snapshots, checkpoints. Bytes in, values out, and back."""

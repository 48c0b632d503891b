"""`make demo` and `cordwood demo`: the main job, shown on a real broker process with a real client, and checked.

Everything happens in a temporary directory and ends by itself; what is claimed is counted, and the exit code says
whether all of it held.
"""

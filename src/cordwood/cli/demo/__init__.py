"""`make demo` and `cordwood demo`: show and check the main job, on a real broker process with a real client.

Everything happens in a temporary directory and ends by itself. Claims are counted, and the exit code is 0 if all held.
"""

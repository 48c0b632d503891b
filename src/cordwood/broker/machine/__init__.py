"""The process of a broker and its machine: clocks, threads, garbage, file descriptors, log lines."""

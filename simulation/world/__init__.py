"""The made-up world: machines, disks, clocks, links, threads, the metadata store, faults, and clients' connections."""

"""`cordwood` as on a machine whose boot has the id in a file.

    python -m tests.cluster.faults.on_a_boot FILE serve ...

A power cut that takes one file system of a running machine does not change the machine's boot id; this does.
"""

import sys

from cordwood.broker import cluster_witness
from cordwood.cli import main

if __name__ == "__main__":
    cluster_witness._BOOT_ID = sys.argv.pop(1)
    main()

"""`python -m benchmarks.log_ins ADDRESS SETTINGS --seconds S`: connections with TLS and a log-in, one after the other.

SETTINGS is a JSON object under librdkafka's names. Prints a JSON object: the number of log-ins, the seconds, and the
CPU of this process. The keys of a password are computed once, as clients that connect again keep them.
"""

from __future__ import annotations

import argparse
import functools
import json
import time

from cordwood.client.connection import Connection
from cordwood.client.settings import ClientSettings
from cordwood.security import scram, scram_client
from cordwood.security.connection_settings import parse_security


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("settings", type=json.loads)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    host, _, port = options.address.partition(":")
    settings = ClientSettings(options.address, security=parse_security(options.settings))
    vars(scram_client)["salted_password"] = functools.cache(scram.salted_password)
    Connection(host, int(port), settings).close()
    count, began_s, began_cpu_s = 0, time.monotonic(), time.process_time()
    while time.monotonic() - began_s < options.seconds:
        Connection(host, int(port), settings).close()
        count += 1
    seconds, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    print(json.dumps({"log_ins": count, "seconds": seconds, "cpu_s": cpu_s}))


if __name__ == "__main__":
    main()

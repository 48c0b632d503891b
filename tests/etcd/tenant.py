"""Another tenant, who writes to the etcd of a cluster: its revision moves without a change of the cluster's own keys.
The tenant knows when etcd last failed to answer in time."""

import json
import math
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Sequence
from http.client import HTTPException
from itertools import cycle
from types import TracebackType
from typing import Self

_EVERY_S = 0.1
_ASK_WITHIN_S = 1.0


class Tenant:
    """Puts a key ten times a second, at one member after the other; members that do not answer are passed over."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._endpoints = endpoints
        self.failed_s = -math.inf
        """The monotonic time at which a member last gave no answer within a second."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="the other tenant of etcd", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        body = json.dumps({"key": b64encode(b"/another-tenant").decode(), "value": ""}).encode()
        for endpoint in cycle(self._endpoints):
            try:
                opener.open(f"http://{endpoint}/v3/kv/put", body, _ASK_WITHIN_S).close()
            except (OSError, HTTPException):
                self.failed_s = time.monotonic()
            if self._stopping.wait(_EVERY_S):
                return

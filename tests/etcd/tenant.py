"""Somebody else who writes to the etcd of a cluster: its revision moves without a change of the cluster's own keys."""

import json
import threading
import urllib.request
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from types import TracebackType
from typing import Self

_EVERY_S = 0.1
_ASK_WITHIN_S = 1.0


class Tenant:
    """Puts a key ten times a second, at one member after the other; members that do not answer are passed over."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._endpoints = endpoints
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
            with suppress(OSError), opener.open(f"http://{endpoint}/v3/kv/put", body, _ASK_WITHIN_S):
                pass
            if self._stopping.wait(_EVERY_S):
                return

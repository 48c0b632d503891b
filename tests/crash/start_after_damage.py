"""A broker on a damaged directory: a process, or the same broker here, which starts in a tenth of the time."""

import logging
from pathlib import Path
from typing import Protocol

from tests.broker_process import BrokerProcess
from tests.deadline import eventually

from cordwood.embedded import Broker
from cordwood.model.errors import EnvironmentFailure


class Started(Protocol):
    """A broker that was started, or refused to start."""

    data_dir: Path
    bootstrap: str

    @property
    def alive(self) -> bool: ...

    def launch_or_refuse(self) -> bool:
        """Whether it serves."""

    def output(self) -> str:
        """What it said since its last start."""

    def stop(self) -> int: ...

    def kill(self) -> None: ...


class ServingProcess(BrokerProcess):
    def launch_or_refuse(self) -> bool:
        self.launch()
        eventually(lambda: self.is_ready() or not self.alive, what="a start or a refusal")
        if self.is_ready():
            self.wait_ready()
            return True
        return False


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class ServingHere:
    def __init__(self, data_dir: Path, settings: dict[str, str]) -> None:
        self.data_dir = data_dir
        self.bootstrap = ""
        self._broker = Broker(data_dir=data_dir, settings=settings)
        self._heard = _Heard()
        self._serves = False

    @property
    def alive(self) -> bool:
        return self._serves and self._broker._run is not None and self._broker._run.alive

    def launch_or_refuse(self) -> bool:
        self._heard.lines.clear()
        logging.getLogger("cordwood").addHandler(self._heard)
        try:
            self._broker.start()
        except EnvironmentFailure as refusal:
            self._heard.lines.append(str(refusal))
            return False
        self._serves = True
        self.bootstrap = self._broker.bootstrap_servers
        return True

    def output(self) -> str:
        return "".join(f"{line}\n" for line in self._heard.lines)

    def stop(self) -> int:
        self.kill()
        return 0

    def kill(self) -> None:
        self._serves = False
        logging.getLogger("cordwood").removeHandler(self._heard)
        self._broker.stop()

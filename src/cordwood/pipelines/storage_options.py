"""Options of an object store: which of them are credentials, and must be written down nowhere.

They are those of the `deltalake` package: `AWS_ENDPOINT_URL`, `AWS_REGION`, `AZURE_STORAGE_ACCOUNT_NAME` and so on.
What they leave out it takes from the environment of the process, or from the machine's role, wherever a file is opened:
in the driver and in each executor.
"""

import re
from collections.abc import Mapping
from typing import Final

SCHEMES: Final = ("s3://", "s3a://", "gs://", "az://", "abfs://", "abfss://")
_CREDENTIALS: Final = re.compile(r"secret|token|password|access_key|account_key|sas|service_account|credential", re.I)


def is_credential(name: str) -> bool:
    return _CREDENTIALS.search(name) is not None


def plain_options(options: Mapping[str, str]) -> dict[str, str]:
    """Without credentials: what may be kept."""
    return {name: value for name, value in options.items() if not is_credential(name)}


def written_out(options: Mapping[str, str], text: bytes) -> str | None:
    """The name of a credential whose value stands in a text, if there is one."""
    for name, value in options.items():
        if is_credential(name) and value and value.encode() in text:
            return name
    return None

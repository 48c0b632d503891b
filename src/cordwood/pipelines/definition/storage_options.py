"""Options of an object store, and which of them are credentials, which must be written down nowhere.

The options are those of the `deltalake` package: `AWS_ENDPOINT_URL`, `AWS_REGION`, `AZURE_STORAGE_ACCOUNT_NAME` and so
on. `deltalake` takes missing options from the environment of the process, or from the machine's role, wherever a file
is opened: in the driver and in each executor.
"""

import re
from collections.abc import Mapping
from typing import Final

SCHEMES: Final = ("s3://", "s3a://", "gs://", "az://", "abfs://", "abfss://")
_CREDENTIALS: Final = re.compile(r"secret|token|password|access_key|account_key|sas|service_account|credential", re.I)


def is_credential(name: str) -> bool:
    return _CREDENTIALS.search(name) is not None


def plain_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options without credentials, which may be kept."""
    return {name: value for name, value in options.items() if not is_credential(name)}


def written_out(options: Mapping[str, str], text: bytes) -> str | None:
    """The name of a credential whose value occurs in a text; None if there is none."""
    for name, value in options.items():
        if is_credential(name) and value and value.encode() in text:
            return name
    return None

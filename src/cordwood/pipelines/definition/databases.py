"""Tables of a database as outputs.

The address of a database is kept with every edition; its password is not. A password comes from the environment
(PGPASSWORD), from ~/.pgpass, or from a definition that reads it from somewhere.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from cordwood.pipelines.definition.errors import InvalidDefinition, Site, calling_site
from cordwood.pipelines.definition.expectations import Expectation, expectations
from cordwood.pipelines.definition.storage_options import is_credential
from cordwood.pipelines.definition.table_output import (
    Table,
    TableFormat,
    checked_keys,
    checked_name,
    checked_remember_deletes_ms,
)

_EXAMPLE: Final = "'postgresql://user@host:5432/database'"
_SCHEMES: Final = ("postgresql", "postgres")
_MAX_NAME_LENGTH: Final = 40
"""PostgreSQL's names have at most 63 bytes; an edition and its staging add to the table's."""


class Address(NamedTuple):
    url: str
    """The address without a password."""
    credentials: dict[str, str]


def jdbc(
    url: str,
    table: str,
    *,
    key: str | Sequence[str] = (),
    latest_by: str | Sequence[str] = (),
    delete_when: str | None = None,
    remember_deletes: str | None = None,
    replayable: bool = True,
    expect: Expectation | Sequence[Expectation] = (),
) -> Table:
    """Declares a table of a PostgreSQL database, for readers of the database under the name `table`.

    `key`, `latest_by`, `delete_when`, `remember_deletes` and `expect` mean what they mean for `table()`: with a key, a
    row replaces the row of the same key, and a tombstone deletes it; without, rows are added. Every edition has a table
    of its own, and the name leads to the live one. Missing tables and columns are made from the types of the rows.
    Leave the password to the environment (PGPASSWORD) or to ~/.pgpass.
    """
    site = calling_site()
    checked_name(table, site)
    if len(table) > _MAX_NAME_LENGTH:
        raise InvalidDefinition(f"{table!r} is too long for a table's name", site, f"{_MAX_NAME_LENGTH} letters")
    keys, latest = checked_keys(table, key, latest_by, delete_when, site)
    address = _address(table, url, site)
    return Table(
        name=table,
        key=keys,
        latest_by=latest,
        delete_when=delete_when,
        format=TableFormat.POSTGRESQL,
        replayable=replayable,
        site=site,
        location=address.url,
        storage_options=address.credentials,
        remember_deletes_ms=checked_remember_deletes_ms(table, remember_deletes, latest, site),
        expect=expectations(expect, f"table {table}", site),
    )


def _address(table: str, url: str, site: Site) -> Address:
    try:
        parts = urlsplit(url.removeprefix("jdbc:") if isinstance(url, str) else "")
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in _SCHEMES or not parts.path.strip("/"):
        told = f"{parts.scheme}://…" if parts.scheme else "it"
        raise InvalidDefinition(f"table {table}: {told} is no address of a PostgreSQL database", site, _EXAMPLE)
    if "@" in parts.path or parts.fragment:
        # The text is told to nobody: what looks like a part of the address may be a part of the password.
        hint = "in a password write @ as %40, / as %2F, # as %23; or leave it to PGPASSWORD"
        raise InvalidDefinition(f"table {table}: the address of the database cannot be taken apart", site, hint)
    who, at, where = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    credentials = {"password": unquote(password)} if password else {}
    plain = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if is_credential(name):
            credentials[name] = value
        else:
            plain.append((name, value))
    query = f"?{urlencode(plain, quote_via=quote)}" if plain else ""
    return Address(f"postgresql://{user}{at}{where}{parts.path}{query}", credentials)

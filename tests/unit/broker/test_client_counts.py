"""Who uses a broker: counted by client id and address, bounded, also for connections that ended."""

from dataclasses import dataclass

from tests.unit.node.lines import Lines

from cordwood.broker.network import client_counts
from cordwood.broker.network.client_counts import LONGEST_ID, MOST_ENDED, OTHERS, ClientBook
from cordwood.node.requests.census import ClientUse


@dataclass(eq=False)
class Counted:
    client_id: str | None
    client_host: str
    requests: int = 0
    received_bytes: int = 0


def test_connections_of_one_client_are_added_up_and_the_busiest_comes_first() -> None:
    book = ClientBook()
    one, two, other = (
        Counted("app", "10.0.0.1", 3, 30),
        Counted("app", "10.0.0.1", 4, 40),
        Counted("b", "10.0.0.2", 5, 1),
    )
    for each in (one, two, other):
        book.opened(each)
    book.closed(two)
    assert book.clients(10) == [ClientUse("app", "10.0.0.1", 1, 2, 7, 70), ClientUse("b", "10.0.0.2", 1, 1, 5, 1)]
    assert [use.client_id for use in book.clients(1)] == ["app"]
    assert book.clients(0) == ()
    book.closed(one)
    assert book.clients(1) == [ClientUse("app", "10.0.0.1", 0, 2, 7, 70)]


def test_a_client_that_connects_with_ever_new_names_does_not_make_the_book_grow() -> None:
    book = ClientBook()
    for number in range(MOST_ENDED + 500):
        connection = Counted(f"app-{number}" + "x" * 40_000, "10.0.0.1", 1, 1)
        book.opened(connection)
        book.closed(connection)
    told = book.clients(2 * MOST_ENDED)
    assert len(told) == MOST_ENDED
    assert max(len(use.client_id) for use in told) <= LONGEST_ID
    assert sum(use.requests for use in told) == MOST_ENDED + 500
    assert told[0][:2] == OTHERS
    assert not book._open


def test_a_connection_without_a_request_has_no_client_id() -> None:
    book = ClientBook()
    book.opened(Counted(None, "10.0.0.1"))
    assert book.clients(1) == [ClientUse("", "10.0.0.1", 1, 1, 0, 0)]
    assert client_counts.ClientBook.version


def test_ten_thousand_connections_are_counted_in_few_lines() -> None:
    """The book is added up in one turn of the loop, for whoever asks."""
    book = ClientBook()
    for number in range(10_000):
        book.opened(Counted(f"app-{number}", "10.0.0.1", number))
    assert Lines(everywhere=True).of(lambda: book.clients(1_000)) < 10_000 * 8 + 1_000 * 40

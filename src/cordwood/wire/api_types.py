"""The types of an API's messages, for the type checker alone: `message_types/` declares them for every API.

Nothing of `message_types/` is imported while a broker or a client runs. At run time the objects are those of the
codecs.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from cordwood.wire.api_keys import ApiKey

Body_co = TypeVar("Body_co", covariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)
Response_co = TypeVar("Response_co", covariant=True)
Element_co = TypeVar("Element_co", covariant=True)


class ApiTypes(Generic[Body_co, Answer_co, Response_co]):
    """Three types under one name: a decoded request, the function that answers it, and a decoded response."""


if TYPE_CHECKING:
    # The defaults are the meaning of `ApiKey` and `Request` alone: a key of any API leads to an answer of any type, and
    # a request of any API can be neither decoded nor answered by its fields.
    Asked_co = TypeVarWithDefault(
        "Asked_co", bound=ApiTypes[Any, Any, Any], covariant=True, default=ApiTypes[Any, Any, Any]
    )
    Served_co = TypeVarWithDefault(
        "Served_co", bound=ApiTypes[Any, Any, Any], covariant=True, default=ApiTypes[object, object, object]
    )
    Response = TypeVarWithDefault("Response", default=Any)
    KeyOf = ApiKey[ApiTypes[Any, Any, Response]]
    """The key of an API with responses of this type."""
else:
    Served_co = TypeVar("Served_co", covariant=True)
    Response = TypeVar("Response")


class Array(Protocol[Element_co]):
    """An array of a response: it has a length, and its elements may be made while they are written."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Element_co]: ...

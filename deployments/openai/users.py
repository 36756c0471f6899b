"""For whom a request is, by names that tell neither keys nor whatever clients call their users."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import Any, TypeVar

from models.embedding import EmbedRequest
from models.request import GenerateRequest, User

Request = TypeVar("Request", GenerateRequest, EmbedRequest)


def opaque(given: str) -> str:
    """The same for the same, on every replica; the empty text stays so."""
    return blake2b(given.encode(), digest_size=8).hexdigest() if given else ""


def named_by(*given: Any) -> User:
    """The user that a body names: by the first of its parameters that is not empty."""
    return User(name=opaque(str(next(filter(None, given), ""))))


def of_key(request: Request, key: str) -> Request:
    """The request as one of the API key with this opaque name."""
    return replace(request, user=request.user._replace(key=key))

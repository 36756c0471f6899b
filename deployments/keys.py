"""API keys: who may ask. Keys are kept and compared as digests, all of them every time."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.access import access_of
from deployments.openai.errors import ApiError
from deployments.openai.users import opaque

ANTHROPICS = "x-api-key"  # the header of Anthropic's clients
MISSING = "You didn't provide an API key. Send it in an Authorization header: 'Bearer YOUR_KEY'."
WRONG = "Incorrect API key provided."


class KeyRing:
    """The keys that open the server; without any it is open to all."""

    def __init__(self, keys: Iterable[str]) -> None:
        keys = list(keys)
        if any(not key.strip() for key in keys):
            raise ValueError("An API key must not be empty.")
        self._digests = [_digest(key.strip().encode()) for key in keys]

    @property
    def open(self) -> bool:
        """Whether no key is needed."""
        return not self._digests

    def holds(self, key: bytes) -> bool:
        """Takes the same time whether and wherever a key matches."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def load_keys(keys: Iterable[str], file: Path | None) -> KeyRing:
    """Keys of the configuration and of a file; raises ``ValueError`` if the file has none."""
    return KeyRing([*keys, *(read_keys(file) if file is not None else ())])


def read_keys(file: Path) -> list[str]:
    """One key a line; blank lines and lines that start with ``#`` are passed over."""
    lines = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ValueError(f"{file} holds no API key.")
    return keys


class RequireKey:
    """Answers 401 to those without a key, in either of the two headers that clients use."""

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._keys.open:
            access_of(scope).key = opaque(self._key(Headers(scope=scope)))
        await self._app(scope, receive, send)

    def _key(self, headers: Headers) -> str:
        given = [key for key in (_bearer(headers), headers.get(ANTHROPICS, "").strip()) if key]
        if not given:
            raise unauthorized(MISSING)
        for key in given:
            if self._keys.holds(key.encode("latin-1")):
                return key
        raise unauthorized(WRONG)


def _bearer(headers: Headers) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def unauthorized(message: str) -> ApiError:
    """401, as OpenAI answers it."""
    return ApiError(
        401, message, code="invalid_api_key", headers={"www-authenticate": 'Bearer realm="v1"'}
    )


def _digest(key: bytes) -> bytes:
    return sha256(key).digest()

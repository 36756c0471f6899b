"""API keys: who may ask. Keys are kept and compared as digests, all of them every time.

A key may have a name, by which it is known to the operator: it stands behind the key.
"""

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
    """The keys that open the server; without any it is open to all.

    ``names`` are those that keys have, by the keys' opaque names.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        pairs = [_parted(key) for key in keys]
        self._digests = [_digest(key.encode()) for key, _ in pairs]
        self.names = {opaque(_as_sent(key)): name for key, name in pairs if name}

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
    """One key a line, with its name if it has one.

    Blank lines and lines that start with ``#`` are passed over.
    """
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


def _parted(line: str) -> tuple[str, str]:
    """A key and its name, which may be empty."""
    key, *names = line.split() or [""]
    if not key:
        raise ValueError("An API key must not be empty.")
    if len(names) > 1:
        raise ValueError("Behind an API key there may be one name, without spaces.")
    return key, "".join(names)


def _as_sent(key: str) -> str:
    """As it is read from a header."""
    return key.encode().decode("latin-1")


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

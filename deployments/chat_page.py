"""A page for browsers at ``/``: a conversation over the server's own ``/v1/chat/completions``."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

FOLDER = Path(__file__).parent / "page"
HEADERS = {
    # It asks nobody but this server, and shows what models write as text only.
    "content-security-policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}


def chat_page_routes() -> list[BaseRoute]:
    """The page needs no key itself; what it asks for does."""
    return [Route("/", _index), Mount("/page", StaticFiles(directory=FOLDER))]


async def _index(request: Request) -> FileResponse:
    return FileResponse(FOLDER / "index.html", headers=HEADERS)

"""In the ingress: the bodies of answers go along a line to the proxy that asked for them."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.lines.outlet import ID_BYTES, Outlet, Reader, Sender

HEADER = b"x-stepserve-reader"  # of a request: who waits for the body of its answer
OUTLET = "stepserve.outlet"  # in the head of an answer: where a line may be had
SENT = "stepserve.sent"  # in its end: how many parts went along the line


class TowardProxy:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, outlet: Outlet) -> None:
        self._app = app
        self._outlet = outlet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reader = _reader(scope) if scope["type"] == "http" else None
        line = self._outlet.line_to(reader)
        if reader is None:
            await self._app(scope, receive, send)
        elif line is None:
            await self._app(scope, receive, self._telling(send))
        else:
            with line.sender(reader.number, lambda: None) as sender:
                await self._app(scope, receive, along(sender, send))

    def _telling(self, send: Send) -> Send:
        async def send_telling(message: Message) -> None:
            if message["type"] == "http.response.start" and self._outlet.address is not None:
                message = {**message, OUTLET: tuple(self._outlet.address)}
            await send(message)

        return send_telling


def along(sender: Sender, send: Send) -> Send:
    """Head and end by ``send``, what is between by the line; raises ``OSError`` if that is lost."""

    async def send_along(message: Message) -> None:
        if message["type"] != "http.response.body":
            await send(message)
        elif not message.get("more_body", False):
            await send({**message, SENT: sender.sent})
        elif message["body"]:
            sender.put(message["body"])

    return send_along


def written(reader: Reader) -> bytes:
    """The header's value."""
    return b"%s-%d" % (reader.inlet.hex().encode(), reader.number)


def _reader(scope: Scope) -> Reader | None:
    value: bytes | None = next((v for name, v in scope["headers"] if name == HEADER), None)
    inlet, _, number = (value or b"").partition(b"-")
    if len(inlet) != 2 * ID_BYTES or not number.isdigit():
        return None
    try:
        return Reader(bytes.fromhex(inlet.decode()), int(number[:18]))
    except ValueError:  # not ours
        return None

"""A server of a few lines, to be started as any other, and whether a process stands still."""

from __future__ import annotations

import sys
import time

from tests.bench.processes import state
from tests.bench.servers import Place, Server

TINY = """
import http.server, sys

USAGE = b'{"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3}}'
WORD = b'data: {"choices":[{"text":"a word"}]}\\n\\n'
ANSWER = 3 * WORD + b"data: " + USAGE + b"\\n\\ndata: [DONE]\\n\\n"

class Tiny(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"")

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(ANSWER)

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Tiny).serve_forever()
"""


def tiny(name: str, script: str = TINY, needs: str = "") -> Server:
    """A server of a few lines, started as any other."""

    def command(place: Place) -> list[str]:
        return [sys.executable, "-c", script, str(place.port)]

    return Server(name, f"the {name}", "float32", command, needs, kinds={"python": "tiny"})


def stops(pid: int) -> bool:
    """Whether it stands still, within the moment that a signal may take."""
    until = time.monotonic() + 5.0
    while state(pid) != "T" and time.monotonic() < until:
        time.sleep(0.01)
    return state(pid) == "T"

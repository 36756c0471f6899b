from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deployments.chat_page import FOLDER
from tests.deployments.serving import client, make_app

SCRIPT = Path(__file__).parent / "page_events.test.mjs"


async def test_the_page_finds_all_that_it_names() -> None:
    async with client(make_app()) as http:
        page = await http.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in page.headers["content-security-policy"]
        named = re.findall(r'(?:href|src)="(page/[^"]+)"', page.text)
        script = await http.get("/page/chat.js")
        named += [f"page/{name}" for name in re.findall(r'from "\./([^"]+)"', script.text)]
        assert {f"page/{file.name}" for file in FOLDER.iterdir()} == {*named, "page/index.html"}
        for name in named:
            answer = await http.get(f"/{name}")
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(("text/css", "text/javascript"))


async def test_it_names_each_part_that_its_script_looks_for() -> None:
    page, script = ((FOLDER / name).read_text() for name in ("index.html", "chat.js"))
    parts = set(re.findall(r'part\("([^"]+)"\)', script))
    assert parts
    assert parts <= set(re.findall(r'id="([^"]+)"', page))


async def test_it_needs_no_key_but_what_it_asks_for_does() -> None:
    async with client(make_app(api_keys=["one"])) as http:
        assert (await http.get("/")).status_code == 200
        assert (await http.get("/page/chat.js")).status_code == 200
        assert (await http.get("/v1/models")).status_code == 401


async def test_it_can_be_left_out() -> None:
    async with client(make_app(chat_page=False)) as http:
        for path in ("/", "/page/chat.js"):
            answer = await http.get(path)
            assert answer.status_code == 404
            assert answer.json()["error"]["code"] == "unknown_url"


async def test_nothing_beside_its_files_is_there() -> None:
    async with client(make_app()) as http:
        for path in ("/page", "/page/", "/page/none.js", "/page/..%2fkeys.py"):
            answer = await http.get(path)
            assert answer.status_code == 404
            assert answer.json()["error"]["code"] == "unknown_url"


@pytest.mark.skipif(not shutil.which("node"), reason="needs Node")
def test_how_it_reads_an_answer() -> None:
    done = subprocess.run(
        ["node", "--test", str(SCRIPT)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr

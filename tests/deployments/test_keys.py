from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from deployments.keys import KeyRing, load_keys, read_keys
from deployments.openai.users import opaque
from tests.deployments.schemas import check
from tests.deployments.serving import chat, client, make_app, post


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/mock", "/metrics"])
async def test_without_keys_all_is_open(path: str) -> None:
    async with client(make_app()) as http:
        assert (await http.get(path)).status_code == 200


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic one", "one", "Bearer é"]
)
async def test_a_missing_or_wrong_key_is_told(authorization: str | None) -> None:
    headers = httpx.Headers()
    if authorization is not None:
        headers = httpx.Headers({"authorization": authorization}, encoding="latin-1")
    async with client(make_app(api_keys=["one", "two"])) as http:
        for path in ("/v1/models", "/v1/models/mock", "/metrics"):
            answer = await http.get(path, headers=headers)
            assert answer.status_code == 401
            check("ErrorResponse", answer.json())
            assert answer.json()["error"]["code"] == "invalid_api_key"
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.headers["x-request-id"]
        assert (await http.post("/v1/completions", json={})).status_code == 401


@pytest.mark.parametrize("authorization", ["Bearer one", "bearer two", "Bearer  two "])
async def test_each_key_opens(authorization: str) -> None:
    async with client(make_app(api_keys=["one", "two"])) as http:
        answer = await http.get("/v1/models", headers={"authorization": authorization})
        assert answer.status_code == 200


async def test_probes_need_no_key() -> None:
    async with client(make_app(api_keys=["one"])) as http:
        assert (await http.get("/health")).status_code == 200
        assert (await http.get("/ready")).status_code == 200


async def test_keys_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# staff\nthree\n\n  four  \r\n#five\n")
    app = make_app(api_keys=["one"], api_keys_file=str(file))
    assert read_keys(file) == ["three", "four"]
    for key in ("one", "three", "four"):
        body = {"model": "mock", "prompt": "Hi"}
        answer = await post(app, "/v1/completions", body, authorization=f"Bearer {key}")
        assert answer.status_code == 200
    assert (await chat(app)).status_code == 401


def test_a_file_without_keys_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# nobody\n\n")
    with pytest.raises(ValueError, match="holds no API key"):
        make_app(api_keys_file=str(file))
    with pytest.raises(FileNotFoundError):
        make_app(api_keys_file=str(tmp_path / "missing"))


def test_an_empty_key_is_an_error() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        load_keys([" "], None)


def test_keys_may_have_names() -> None:
    ring = KeyRing(["one ann", " two ", "three\tbob"])
    assert ring.names == {opaque("one"): "ann", opaque("three"): "bob"}
    assert all(ring.holds(key) for key in (b"one", b"two", b"three"))
    assert not ring.holds(b"one ann")
    with pytest.raises(ValueError, match="one name"):
        KeyRing(["one ann bob"])


async def test_the_name_of_a_key_that_is_not_ascii() -> None:
    """It comes as latin-1 characters of its UTF-8 bytes."""
    app = make_app(api_keys=["schlüssel ann"], rate_limits={"requests_per_minute": 1})
    headers = httpx.Headers({"authorization": "Bearer schlüssel"}, encoding="utf-8")
    async with client(app) as http:
        body = {"model": "mock", "prompt": "Hi"}
        told = [await http.post("/v1/completions", json=body, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in told] == [200, 429]


def test_a_ring_compares_bytes() -> None:
    ring = KeyRing(["schlüssel"])
    assert ring.holds("schlüssel".encode())
    assert not ring.holds(b"schl")
    assert KeyRing([]).open

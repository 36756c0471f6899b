"""``make serve`` with a certificate."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from pathlib import Path

import httpx
import pytest
import yaml

from deployments.serve_run import ask_ready
from tests.serving import HOST, ROOT, START_S, starting

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl"),
]

BODY = {"model": "mock", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def certified(folder: Path) -> tuple[Path, Path]:
    """A configuration with a certificate of its own, and that certificate."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    about = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=IP:{HOST}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*make, *about, *files], check=True, capture_output=True)
    config = yaml.safe_load((ROOT / "configs" / "presets" / "mock.yaml").read_text())
    options = {"ssl_keyfile": str(key), "ssl_certfile": str(certificate)}
    config["http_options"] |= options
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path, certificate


def test_it_answers_over_tls_alone(tmp_path: Path) -> None:
    config, certificate = certified(tmp_path)
    trusted = ssl.create_default_context(cafile=str(certificate))
    with starting(config) as server:
        until = time.monotonic() + START_S
        while ask_ready(HOST, server.port, tls=True) is None:
            assert server.process.poll() is None, server.log()
            assert time.monotonic() < until, server.log()
            time.sleep(0.2)
        url = f"https://{HOST}:{server.port}"
        with httpx.Client(base_url=url, verify=trusted, timeout=60) as http:
            answer = http.post("/v1/chat/completions", json=BODY)
        assert answer.text.endswith("data: [DONE]\n\n")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://{HOST}:{server.port}/health")
        assert server.stop() == 0, server.log()
        assert f"ready: {url}/v1" in server.log()
        assert "http://" not in server.log()

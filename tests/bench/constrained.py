"""What rows under a grammar cost the others in their steps.

``python -m tests.bench.constrained [--model SOURCE] [--device cuda]`` prints a Markdown table: the
pace of the same free rows beside other free ones, and beside ones that follow a JSON schema.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from configs.settings import EngineSettings, ModelSettings
from models.build import ServedSteps, build_model
from models.metrics import LlmMetrics
from models.request import Grammar, SamplingParams
from models.step_loop import StepLoop
from models.token_engine import TokenEngine
from models.tokens import TokenRequest, Tokens

PROMPT_TOKENS = 8
ENDLESS = Grammar(
    "json_schema",
    json.dumps(
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": 20},
                    "age": {"type": "integer", "minimum": 0, "maximum": 130},
                    "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3},
                },
                "required": ["name", "age", "tags"],
                "additionalProperties": False,
            },
            "minItems": 1000,
        }
    ),
)


@dataclass(frozen=True)
class Pace:
    """Milliseconds between the tokens of free rows, and tokens a second of all rows."""

    median_ms: float
    p95_ms: float
    tokens_per_s: float


def build(source: str | None, rows: int, device: Literal["auto", "cpu", "cuda"]) -> ServedSteps:
    settings = ModelSettings(
        name="bench",
        factory="tests.models.babbling:babbling",
        engine=EngineSettings(max_running=rows),
    )
    if source:
        engine = EngineSettings(
            max_running=rows, prefix_cache=False, device=device, kv_cache_gib=0.5, max_context=512
        )
        settings = ModelSettings(name="bench", source=source, engine=engine)
    built = build_model(settings, LlmMetrics("bench"))
    assert isinstance(built, ServedSteps)
    return built


async def measure(
    built: ServedSteps, free: int, others: int, constrained: bool, tokens: int
) -> Pace:
    """``free`` rows beside ``others``, which are free too or constrained."""
    engine = built.engine(StepLoop(built.stepper))
    grammar = ENDLESS if constrained else None
    await asyncio.gather(*(_gaps(engine, i, grammar, 16) for i in range(others)))  # warm
    began = time.perf_counter()
    gaps = await asyncio.gather(
        *(_gaps(engine, i, None, tokens) for i in range(free)),
        *(_gaps(engine, free + i, grammar, tokens) for i in range(others)),
    )
    took = time.perf_counter() - began
    return _pace([gap for row in gaps[:free] for gap in row], tokens * (free + others) / took)


async def _gaps(
    engine: TokenEngine, index: int, grammar: Grammar | None, count: int
) -> list[float]:
    sampling = SamplingParams(max_tokens=count, temperature=1, seed=index, ignore_eos=True)
    prompt = tuple(range(40, 40 + PROMPT_TOKENS))
    request = TokenRequest(f"{index}", prompt, sampling, frozenset(), grammar=grammar)
    times: list[float] = []
    async with aclosing(engine.generate(request)) as items:
        async for item in items:
            if isinstance(item, Tokens):
                times += [time.perf_counter()] * len(item.token_ids)
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def _pace(gaps: Sequence[float], tokens_per_s: float) -> Pace:
    cuts = statistics.quantiles(gaps, n=20)
    return Pace(statistics.median(gaps) * 1e3, cuts[-1] * 1e3, tokens_per_s)


HEADER = """\
| free rows | beside | median gap, ms | p95 gap, ms | tokens/s of all |
|---|---|---|---|---|"""


def table(free: int, others: int, plain: Pace, mixed: Pace) -> str:
    """Three lines: the pace beside free rows, beside constrained ones, and the ratio."""
    ratio = (
        f"| {free} | ratio | {mixed.median_ms / plain.median_ms:.3f} "
        f"| {mixed.p95_ms / plain.p95_ms:.3f} | {mixed.tokens_per_s / plain.tokens_per_s:.3f} |"
    )
    return "\n".join(
        [_row(free, f"{others} free", plain), _row(free, f"{others} constrained", mixed), ratio]
    )


def _row(free: int, beside: str, pace: Pace) -> str:
    cells = f"{pace.median_ms:.2f} | {pace.p95_ms:.2f} | {pace.tokens_per_s:.0f}"
    return f"| {free} | {beside} | {cells} |"


async def compare(built: ServedSteps, free: int, others: int, tokens: int) -> tuple[Pace, Pace]:
    """Beside free rows, then beside constrained ones."""
    plain = await measure(built, free, others, False, tokens)
    return plain, await measure(built, free, others, True, tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a source as in serve_config.yaml; else a tiny model")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--tokens", type=int, default=150)
    parser.add_argument("--rows", type=int, nargs="+", default=[4, 8])
    arguments = parser.parse_args()
    print(HEADER)
    for rows in arguments.rows:
        built = build(arguments.model, 2 * rows, arguments.device)
        plain, mixed = asyncio.run(compare(built, rows, rows, arguments.tokens))
        print(table(rows, rows, plain, mixed), flush=True)


if __name__ == "__main__":
    main()

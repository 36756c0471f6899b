"""What clients of the default model see, through the whole graph and over the bare engine.

``python -m tests.bench.serving`` starts `serve run`, then the same engine in one process without
Ray, asks both for the same streams, and prints a Markdown table with the graph's share.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import openai
import yaml
from filelock import FileLock

from configs.settings import ModelSettings
from models.build import build_scheduled
from models.events import Text
from models.request import GenerateRequest, SamplingParams, TextPrompt
from models.scheduled import Scheduled
from tests.bench.step_batching import LOCK
from tests.serving import ROOT, serving

Stream = Callable[[str, int], AsyncIterator[str]]  # prompt, tokens: the answer's pieces


@dataclass(frozen=True)
class Timing:
    """One stream: seconds to its first piece, and between its pieces."""

    first_s: float
    gaps_s: list[float]


@dataclass(frozen=True)
class Result:
    tokens_per_s: float
    first_ms: float  # median
    gap_ms: float  # median
    gap_p99_ms: float


async def time_stream(pieces: AsyncIterator[str]) -> Timing:
    times = [time.perf_counter()]
    async for _ in pieces:
        times.append(time.perf_counter())
    gaps = [later - earlier for earlier, later in pairwise(times[1:])]
    return Timing(times[1] - times[0], gaps)


async def measure(stream: Stream, streams: int, tokens: int) -> Result:
    """``streams`` at once, each over a prompt of its own of about 128 tokens."""
    began = time.perf_counter()
    prompts = [
        f"{streams} {number}: " + "tell me a tale of kings and stars " * 15
        for number in range(streams)
    ]
    timings = await asyncio.gather(*(time_stream(stream(prompt, tokens)) for prompt in prompts))
    took = time.perf_counter() - began
    gaps = sorted(gap for timing in timings for gap in timing.gaps_s)
    return Result(
        tokens_per_s=streams * tokens / took,
        first_ms=statistics.median(timing.first_s for timing in timings) * 1000,
        gap_ms=statistics.median(gaps) * 1000,
        gap_p99_ms=gaps[int(len(gaps) * 0.99)] * 1000,
    )


def over_http(client: openai.AsyncOpenAI, model: str) -> Stream:
    async def stream(prompt: str, tokens: int) -> AsyncIterator[str]:
        chunks = await client.completions.create(
            model=model,
            prompt=prompt,
            max_tokens=tokens,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        async for chunk in chunks:
            if text := chunk.choices[0].text:
                yield text

    return stream


def over_engine(engine: Scheduled) -> Stream:
    async def stream(prompt: str, tokens: int) -> AsyncIterator[str]:
        request = GenerateRequest(
            id=prompt,
            prompt=TextPrompt(prompt),
            sampling=SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True),
        )
        async with aclosing(engine.generate(request)) as events:
            async for event in events:
                if isinstance(event, Text):
                    yield event.delta

    return stream


async def graph_results(url: str, model: str, loads: list[int], tokens: int) -> list[Result]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=600) as client:
        return await results(over_http(client, model), loads, tokens)


async def results(stream: Stream, loads: list[int], tokens: int) -> list[Result]:
    await measure(stream, 1, 4)  # the first request of all is not counted
    return [await measure(stream, streams, tokens) for streams in loads]


HEADER = """\
| streams | path | tokens/s | first token, ms | between tokens, ms: median | p99 |
|---|---|---|---|---|---|"""


def rows(streams: int, graph: Result, engine: Result) -> Iterator[str]:
    for name, result in (("graph", graph), ("engine", engine)):
        yield (
            f"| {streams} | {name} | {result.tokens_per_s:.1f} | {result.first_ms:.0f} "
            f"| {result.gap_ms:.1f} | {result.gap_p99_ms:.1f} |"
        )
    yield (
        f"| {streams} | share | {graph.tokens_per_s / engine.tokens_per_s:.1%} "
        f"| {graph.first_ms - engine.first_ms:+.0f} | {graph.gap_ms / engine.gap_ms:.1%} "
        f"| {graph.gap_p99_ms / engine.gap_p99_ms:.1%} |"
    )


def compare(config: Path, loads: list[int], tokens: int) -> Iterator[str]:
    """The table's lines."""
    arguments = yaml.safe_load(config.read_text())["applications"][0]["args"]["models"][0]
    settings = ModelSettings.model_validate(arguments)
    with serving(config) as server:
        graph = asyncio.run(graph_results(server.url, settings.name, loads, tokens))
    with build_scheduled(settings) as scheduled:
        engine = asyncio.run(results(over_engine(scheduled), loads, tokens))
    yield HEADER
    for streams, through_graph, bare in zip(loads, graph, engine, strict=True):
        yield from rows(streams, through_graph, bare)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.serving", description=__doc__)
    parser.add_argument("--config", type=Path, default=ROOT / "serve_config.yaml")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    arguments = parser.parse_args()
    with FileLock(LOCK):
        print("\n".join(compare(arguments.config, arguments.streams, arguments.tokens)))


if __name__ == "__main__":
    main()

"""The engine in one process, without Ray or HTTP: what the graph is compared with.

``python -m tests.bench.bare SETTINGS`` is run by the benchmark. It says ``ready`` once it has
answered its first requests, then a line of figures for each line of its input: a scenario's name
and what its prompts are seeded with, as a JSON list.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import aclosing

import uvloop
from pydantic import TypeAdapter

from configs.settings import ModelSettings
from models.build import build_scheduled
from models.engine import LlmEngine
from models.events import Finished, Text
from models.request import GenerateRequest, SamplingParams, TextPrompt
from tests.bench.client import Ask
from tests.bench.figures import Figures, figures
from tests.bench.prompts import Prompts
from tests.bench.scenarios import SCENARIOS, run, warm_up
from tests.bench.sse import Stream

FIGURES = TypeAdapter(Figures)
READY = "ready"


def over_engine(engine: LlmEngine) -> Ask:
    """Asks it as ``client.over_http`` asks a server."""

    async def ask(prompt: str, tokens: int, stream: Stream) -> None:
        request = GenerateRequest(
            id=uuid.uuid4().hex,
            prompt=TextPrompt(prompt),
            sampling=SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True),
        )
        stream.sent = time.perf_counter()
        async with aclosing(engine.generate(request)) as events:
            async for event in events:
                if isinstance(event, Text):
                    stream.arrivals.append(time.perf_counter())
                elif isinstance(event, Finished):
                    stream.tokens = event.usage.completion_tokens
                    stream.prompt_tokens = event.usage.prompt_tokens
        stream.ended = time.perf_counter()

    return ask


def turns(engine: LlmEngine, source: Prompts, asked: Iterable[str]) -> Iterator[str]:
    """What to say, line by line; the first line before anything is asked."""
    ask = over_engine(engine)
    uvloop.run(warm_up(ask, source))
    yield READY
    for line in asked:
        name, *seed = json.loads(line)
        spent = time.process_time()
        course = uvloop.run(run(SCENARIOS[name], ask, source, *seed))
        found = figures(course, {"process": time.process_time() - spent})
        yield FIGURES.dump_json(found).decode()


def main() -> None:
    model = ModelSettings.model_validate(json.loads(sys.argv[1]))
    assert model.source
    source = Prompts.counted_by(model.source)
    with build_scheduled(model) as engine:
        for line in turns(engine, source, sys.stdin):
            print(line, flush=True)


if __name__ == "__main__":
    main()

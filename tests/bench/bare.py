"""The engine in one process, without Ray or HTTP: what the graph is compared with.

``python -m tests.bench.bare SETTINGS SCENARIOS SEED FILE`` is run by the benchmark, each time
anew, and writes what it found to the file.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from contextlib import aclosing
from pathlib import Path
from typing import Any

import uvloop
from pydantic import TypeAdapter

from configs.settings import ModelSettings
from models.build import build_scheduled
from models.events import Finished, Text
from models.request import GenerateRequest, SamplingParams, TextPrompt
from models.scheduled import Scheduled
from tests.bench.client import Ask
from tests.bench.figures import Figures, figures
from tests.bench.prompts import Prompts
from tests.bench.scenarios import SCENARIOS, run, warm_up
from tests.bench.sse import Stream

FIGURES = TypeAdapter(dict[str, Figures])


def over_engine(engine: Scheduled) -> Ask:
    """Asks it as `client.over_http` asks a server."""

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


async def measure(engine: Scheduled, names: list[str], source: Prompts, seed: str) -> bytes:
    ask = over_engine(engine)
    await warm_up(ask, source, seed)
    found: dict[str, Figures] = {}
    for name in names:
        spent = time.process_time()
        course = await run(SCENARIOS[name], ask, source, seed)
        found[name] = figures(course, {"process": time.process_time() - spent})
    return FIGURES.dump_json(found)


def main() -> None:
    settings, names, seed, file = sys.argv[1:]
    arguments: dict[str, Any] = json.loads(settings)
    model = ModelSettings.model_validate(arguments)
    assert model.source
    source = Prompts.counted_by(model.source)
    with build_scheduled(model) as engine:
        found = uvloop.run(measure(engine, names.split(","), source, seed))
    Path(file).write_bytes(found)


if __name__ == "__main__":
    main()

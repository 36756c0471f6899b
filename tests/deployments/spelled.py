"""The application over a real engine and decoder, with a model that spells what a test wants."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from tokenizers import AddedToken, Tokenizer

from models.metrics import LlmMetrics
from models.schedule.admission import Admission
from models.scheduled import Scheduled
from models.step.plain import PlainStepModel
from models.step_loop import StepLoop
from models.stepper import Stepper
from models.text.byte_tokenizer import BOS, CHAT_TEMPLATE, END, byte_tokenizer
from models.text.loading import byte_pipeline
from models.text.pipeline import TextPipeline
from models.token_engine import TokenEngine
from tests.deployments.serving import Exchange, chat, events, make_app
from tests.models.spelling import Spelling
from tests.models.text.vocabularies import id_of

BYTES = byte_tokenizer()
EOS = id_of(BYTES, END)
USER = id_of(BYTES, "<|user|>")
FIRST_PIECE = BYTES.get_vocab_size()
VOCABULARY = 300


def spelling(*answers: Sequence[int] | str, end: int = EOS, paced: bool = False) -> Spelling:
    """Texts are spelled byte by byte, the names of control tokens too."""
    ids = [list(answer.encode()) if isinstance(answer, str) else answer for answer in answers]
    return Spelling(*ids, end=end, vocab_size=VOCABULARY, paced=paced)


def pipeline(*pieces: str) -> TextPipeline:
    """Bytes, and these pieces as tokens of their own from ``FIRST_PIECE`` on."""
    tokenizer: Tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in pieces])
    return TextPipeline(
        tokenizer,
        special_tokens={"bos_token": BOS, "eos_token": END},
        chat_template=CHAT_TEMPLATE,
    )


@contextmanager
def answering(
    model: Spelling, text: TextPipeline | None = None, *, running: int = 4, **settings: Any
) -> Iterator[Starlette]:
    """So many run, and four more wait at most: its state has the admission.

    Afterwards nothing runs or waits, and all blocks are free.
    """
    metrics = LlmMetrics("mock")
    stepper = Stepper(PlainStepModel(model, slots=4), step_tokens=256, metrics=metrics)
    engine = TokenEngine(stepper, StepLoop(stepper), Admission(running, 4, 4096), metrics)
    with Scheduled("mock", engine, text or byte_pipeline()) as scheduled:
        try:
            app = make_app(scheduled, **settings)
            app.state.admission = engine.admission
            yield app
        finally:
            model.let(10_000)
    assert (stepper.live, engine.admission.running, engine.admission.waiting) == (0, 0, 0)
    stepper.pool.check()


@dataclass(frozen=True)
class Streamed:
    """One choice's answer as it was streamed."""

    deltas: list[str]
    end: dict[str, Any]
    usage: dict[str, Any]

    @property
    def text(self) -> str:
        return "".join(self.deltas)

    @property
    def ending(self) -> tuple[Any, Any, Any]:
        """Why it ended, the stop that matched, and how many tokens it took."""
        end = self.end
        return end["finish_reason"], end["stop_reason"], self.usage["completion_tokens"]


async def streamed(
    model: Spelling, stop: Any = None, text: TextPipeline | None = None, **body: Any
) -> Streamed:
    """A greedy chat's answer."""
    with answering(model, text) as app:
        [answer] = await streams(app, stop=stop, **{"temperature": 0, **body})
    return answer


async def streams(app: Starlette, **body: Any) -> list[Streamed]:
    """A chat's answers; no chunk between its opening and its end is empty."""
    answer = await chat(app, stream=True, stream_options={"include_usage": True}, **body)
    assert answer.status_code == 200, answer.text
    *chunks, usage, done = events(answer.text)
    assert done == "[DONE]"
    choices = [chunk["choices"][0] for chunk in chunks]
    apart = [[c for c in choices if c["index"] == i] for i in range(body.get("n", 1))]
    read = [Streamed(_deltas(own), own[-1], usage["usage"]) for own in apart]
    assert all("" not in one.deltas for one in read)
    return read


async def live_choices(exchange: Exchange) -> AsyncGenerator[Any, None]:
    """The choice of each chunk as it comes."""
    while (message := await exchange.next()).get("more_body", True):
        for chunk in events(message["body"].decode()) if "body" in message else []:
            if chunk != "[DONE]":
                yield chunk["choices"][0]


def _deltas(choices: list[dict[str, Any]]) -> list[str]:
    assert choices[0]["delta"]["content"] == ""
    assert choices[-1]["delta"] == {}
    return [choice["delta"]["content"] for choice in choices[1:-1]]

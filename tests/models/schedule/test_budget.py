"""What a step may still compute."""

from __future__ import annotations

from models.request import SamplingParams
from models.schedule.blocks import BlockPool
from models.schedule.budget import SCORED_TOKENS
from models.schedule.lookup import Drafting
from models.schedule.pace import Pace
from models.schedule.plan import Scheduler
from models.schedule.sequence import Chunk, Sequence
from models.schedule.step_time import Load


def quick_pace() -> Pace:
    """Of a device to which more tokens cost next to nothing."""
    pace = Pace()
    for _ in range(50):
        pace.time.observe(Load(1), 0.1)
        pace.time.observe(Load(64, 20_000, 20_000), 0.1)
    return pace


def repeating(name: str, *, scores_prompt: bool = False) -> Sequence:
    return Sequence(
        name, [1, 2, 3] * 20, SamplingParams(), frozenset(), 1000, 0, scores_prompt=scores_prompt
    )


def taken(scheduler: Scheduler) -> list[Chunk]:
    """One step, after which each sequence has what was guessed first."""
    chunks, _ = scheduler.plan()
    for chunk in chunks:
        if chunk.samples:
            chunk.sequence.pending -= 1
            chunk.sequence.tokens.append(chunk.sequence.tokens[-3])
            chunk.sequence.drafted = False
    return chunks


def test_drafts_leave_half_of_the_scored_tokens_to_prompts() -> None:
    scheduler = Scheduler(BlockPool(4096, 16, False), 64, 4000, quick_pace(), Drafting(16))
    for i in range(50):
        scheduler.add(repeating(f"{i}"))
    while not all(s.generated for s in scheduler.live):
        taken(scheduler)
    for i in range(5):
        scheduler.add(repeating(f"scored {i}", scores_prompt=True))
    chunks = taken(scheduler)
    assert sum(len(chunk.draft) for chunk in chunks) == SCORED_TOKENS // 2
    assert sum(len(chunk.targets) for chunk in chunks) == SCORED_TOKENS // 2

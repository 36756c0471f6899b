"""The engine under random arrivals, a tiny pool, forced preemption, cancellation and failure."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence as Several
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

import pytest

from models.constrain.grammars import Grammars
from models.errors import Busy, Closed, Failed, Invalid, TimedOut, TooLong
from models.events import FinishReason
from models.metrics import LlmMetrics
from models.request import Grammar, SamplingParams, User
from models.schedule.budget import SCORED_TOKENS
from models.schedule.sequence import Chunk, Scores, Sequence
from models.stepper import Stepper
from models.text.loading import byte_pipeline
from models.text.pipeline import Vocabulary
from models.tokens import Admitted, Tokens
from tests.models.asking import ask, assert_nothing_held, collect, serving
from tests.models.counted import counted
from tests.models.recall import CURSED, Ready, RecallModel, expected, recall_model, score


@pytest.mark.parametrize("ahead", [False, True])
async def test_one_request(ahead: bool) -> None:
    async with serving(recall_model(launch_ahead=ahead)) as engine:
        answered = await collect(engine, ask([3, 1, 4, 1, 5], 10, seed=7))
    assert answered.tokens[0] == expected([3, 1, 4, 1, 5], 7, 10)
    assert answered.finishes[0].finish is FinishReason.LENGTH
    assert answered.admitted == Admitted(5, 0)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("seconds", [0, 0.005, 0.03])
async def test_closing_fails_who_runs_who_waits_and_who_comes_later(
    ahead: bool, seconds: float
) -> None:
    async with serving(recall_model(launch_ahead=ahead, slots=2, seconds=0.01)) as engine:
        asking = [asyncio.create_task(collect(engine, ask([1, n], 50))) for n in range(5)]
        await asyncio.sleep(seconds)
        engine.close()
        asking.append(asyncio.create_task(collect(engine, ask([2]))))
        ended = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 10)
    assert {type(error) for error in ended} == {Closed}


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("blocks", [16, 64])
@pytest.mark.parametrize("step_tokens", [3, 16])
async def test_parity_under_random_arrivals_and_cancellation(
    ahead: bool, blocks: int, step_tokens: int
) -> None:
    chance = random.Random(blocks * 100 + step_tokens)
    model = recall_model(blocks=blocks, launch_ahead=ahead)
    shared = [chance.randrange(97) for _ in range(20)]
    async with serving(model, step_tokens=step_tokens) as engine:

        async def one(number: int) -> None:
            await asyncio.sleep(chance.random() * 0.05)
            prompt = shared[: chance.randrange(20)] + [
                chance.randrange(97) for _ in range(chance.randrange(1, 20))
            ]
            count = chance.randrange(1, 24)
            answer = collect(engine, ask(prompt, count, seed=number))
            if chance.random() < 0.3:
                with suppress(TimeoutError):
                    await asyncio.wait_for(answer, chance.random() * 0.05)
                return
            answered = await answer
            assert answered.tokens[0] == expected(prompt, number, count)

        await asyncio.gather(*(one(number) for number in range(150)))
    if blocks == 16:
        assert counted(engine, "preemptions") > 0
    assert len(model.threads) == 1


async def test_a_long_answer_fills_the_context_to_the_brim() -> None:
    model = recall_model(blocks=8, block_size=4, max_context=32)
    async with serving(model) as engine:
        answered = await collect(engine, ask(list(range(30)), None))
        assert len(answered.tokens[0]) == 2
        with pytest.raises(TooLong) as refused:
            await collect(engine, ask([1] * 32))
    assert (refused.value.prompt_tokens, refused.value.max_context) == (32, 32)


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_stop_id_ends_the_answer_and_is_reported(ahead: bool) -> None:
    tokens = expected([5, 6], 1, 20)
    stop = tokens[7]
    upto = tokens.index(stop)
    async with serving(recall_model(launch_ahead=ahead)) as engine:
        answered = await collect(engine, ask([5, 6], 20, seed=1, stop_ids=frozenset({stop})))
    assert answered.tokens.get(0, []) == tokens[:upto]
    assert answered.finishes[0].finish is FinishReason.STOP
    assert answered.finishes[0].stop_id == stop


async def test_choices_share_one_prefill() -> None:
    prompt = list(range(33))
    model = recall_model()
    async with serving(model, step_tokens=64) as engine:
        answered = await collect(engine, ask(prompt, 4, seed=10, n=4))
        assert counted(engine, "prefix_cache_hits") == 96
    assert answered.tokens == {choice: expected(prompt, 10 + choice, 4) for choice in range(4)}


async def test_one_choice_can_be_stopped_alone() -> None:
    async with serving(recall_model(seconds=0.001)) as engine:
        request = ask([1, 2, 3], 40, n=2, name="pair")
        ended: dict[int, int] = {}
        counts = [0, 0]
        async with aclosing(engine.generate(request)) as items:
            async for item in items:
                if isinstance(item, Tokens):
                    counts[item.choice] += len(item.token_ids)
                    engine.stop_choice("pair", 0)
                    if item.finish:
                        ended[item.choice] = counts[item.choice]
        engine.stop_choice("pair", 0)
    assert ended[0] < 40
    assert ended[1] == 40


@pytest.mark.parametrize("ahead", [False, True])
async def test_closing_frees_everything_at_once(ahead: bool) -> None:
    model = recall_model(slots=2, launch_ahead=ahead, seconds=0.002)
    async with serving(model) as engine:
        waiting = asyncio.create_task(collect(engine, ask([9], 50)))
        async with aclosing(engine.generate(ask([1, 2, 3], 50, n=2))) as items:
            await anext(items)
            await anext(items)
        assert engine.admission.running <= 1
        assert engine.stepper.pool.used <= engine.stepper.pool.needed(51)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert_nothing_held(engine)


async def test_a_slow_reader_does_not_hold_up_the_steps() -> None:
    async with serving(recall_model()) as engine:
        slow = engine.generate(ask([1, 2], 30))
        await anext(slow)
        answered = await collect(engine, ask([3, 4], 30))
        assert len(answered.tokens[0]) == 30
        for _ in range(50):
            await asyncio.sleep(0.002)
            if not engine.stepper.live:
                break
        rest = [item async for item in slow]
        assert isinstance(rest[-1], Tokens)
        assert rest[-1].finish is FinishReason.LENGTH
        assert len(rest) <= 2


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_failed_step_fails_its_sequences_and_no_others(ahead: bool) -> None:
    model = recall_model(fail_on=CURSED, launch_ahead=ahead, slots=1)
    async with serving(model) as engine:
        cursed = asyncio.create_task(collect(engine, ask([CURSED, 4], 20)))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(collect(engine, ask([9, 9, 9], 20)))
        with pytest.raises(Failed, match="this token is cursed"):
            await cursed
        assert (await waiting).tokens[0] == expected([9, 9, 9], 0, 20)
        assert engine.stepper.failure == "RuntimeError: this token is cursed"


@pytest.mark.parametrize("ahead", [False, True])
async def test_sequences_outside_a_failed_step_start_over(ahead: bool) -> None:
    """A budget of one token: each step computes the older sequence, or the cursed one alone."""
    model = recall_model(fail_on=CURSED, launch_ahead=ahead)
    async with serving(model, step_tokens=1) as engine:
        older = asyncio.create_task(collect(engine, ask([1, 2, 3], 5)))
        await asyncio.sleep(0)
        with pytest.raises(Failed, match="this token is cursed"):
            await collect(engine, ask([7, 7, CURSED, 4], 20))
        assert (await older).tokens[0] == expected([1, 2, 3], 0, 5)


class Miscounting(RecallModel):
    def launch(self, chunks: Several[Chunk]) -> Ready:
        return Ready(super().launch(chunks).values[1:])


async def test_a_model_that_forgets_a_token_fails_its_step() -> None:
    model = Miscounting(recall_model().capacity)
    async with serving(model) as engine:
        with pytest.raises(Failed, match="0 tokens for 1 sequences"):
            await asyncio.wait_for(collect(engine, ask([1, 2])), 5)
    assert engine.stepper.failure


class Quitting(RecallModel):
    def launch(self, chunks: Several[Chunk]) -> Ready:
        raise SystemExit(3)


async def test_a_model_that_would_end_the_process_fails_its_step() -> None:
    async with serving(Quitting(recall_model().capacity)) as engine:
        with pytest.raises(Failed, match="SystemExit"):
            await asyncio.wait_for(collect(engine, ask([1, 2])), 5)


async def test_an_engine_given_up_answers_all_who_wait() -> None:
    async with serving(recall_model(slots=1, seconds=0.05)) as engine:
        waiting = [asyncio.create_task(collect(engine, ask([1], 50))) for _ in range(2)]
        await asyncio.sleep(0.1)
        engine.abandon("It has stalled.")
        for task in waiting:
            with pytest.raises(Failed, match="stalled"):
                await asyncio.wait_for(task, 5)


async def test_our_own_failure_fails_who_runs_and_turns_the_engine_red() -> None:
    async with serving(recall_model()) as engine:
        engine.stepper.pool.block_size = 0
        with pytest.raises(Failed, match="must not be zero"):
            await asyncio.wait_for(collect(engine, ask([1, 2])), 5)
        assert engine.stepper.failure


async def test_a_leaked_block_turns_the_engine_red_and_is_taken_back() -> None:
    async with serving(recall_model()) as engine:
        stray = Sequence("stray", [1] * 9, SamplingParams(), frozenset(), 64, seed=0)
        assert engine.stepper.pool.admit(stray)
        assert (await collect(engine, ask([1, 2]))).tokens[0] == expected([1, 2], 0, 8)
        assert engine.stepper.failure == "AssertionError: 3 of 64 blocks leaked"
        assert engine.admission.running == 0


async def test_ids_beyond_the_vocabulary_are_refused() -> None:
    async with serving(recall_model()) as engine:
        with pytest.raises(Invalid, match="98 is outside the model's 98 tokens"):
            await collect(engine, ask([98]))


def test_a_pool_too_small_for_one_sequence_is_refused() -> None:
    model = RecallModel(replace(recall_model(blocks=8).capacity, max_context=33))
    with pytest.raises(ValueError, match="8 blocks of 4 tokens cannot hold one sequence of 33"):
        Stepper(model, step_tokens=16, metrics=LlmMetrics("recall"))


async def test_too_many_are_refused_before_anything_is_queued() -> None:
    async with serving(recall_model(slots=1, seconds=0.002), waiting=1) as engine:
        running = asyncio.create_task(collect(engine, ask([1], 20)))
        queued = asyncio.create_task(collect(engine, ask([2], 2)))
        await asyncio.sleep(0.01)
        with pytest.raises(Busy):
            await collect(engine, ask([3], 2))
        assert (await queued).tokens[0] == expected([2], 0, 2)
        assert (await running).tokens[0] == expected([1], 0, 20)
        with pytest.raises(Invalid, match="n=3"):
            await collect(engine, ask([3], 2, n=3))
        assert counted(engine, "requests_rejected") == 1


async def test_finishes_are_counted_by_reason() -> None:
    async with serving(recall_model(seconds=0.001)) as engine:
        await collect(engine, ask([1], 3))
        async with aclosing(engine.generate(ask([2], 50))) as items:
            await anext(items)
        async with aclosing(engine.generate(ask([2], 50, name="text"))) as items:
            await anext(items)
            engine.stop_choice("text", 0)
        finished = {
            reason: counted(engine, "requests_finished", reason=reason)
            for reason in ("length", "cancelled", "stop")
        }
    assert finished == {"length": 1, "cancelled": 1, "stop": 1}


def scores_of(tokens: list[int], first: int) -> list[Scores]:
    return [score(tokens[:i], tokens[i]) for i in range(first, len(tokens))]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("blocks", [16, 64])
async def test_scores_are_right_whatever_happens_to_their_sequences(
    ahead: bool, blocks: int
) -> None:
    """Chunks, prefixes that others left in the cache, preemption, several choices."""
    chance = random.Random(blocks)
    model = recall_model(blocks=blocks, launch_ahead=ahead)
    shared = [chance.randrange(97) for _ in range(20)]
    async with serving(model, step_tokens=7) as engine:

        async def one(number: int) -> None:
            await asyncio.sleep(chance.random() * 0.05)
            prompt = shared[: chance.randrange(20)] + [chance.randrange(97) for _ in range(3)]
            count, n = chance.randrange(1, 24), 1 + number % 2
            request = ask(prompt, count, seed=number, n=n, scored=number % 3 > 0)
            answered = await collect(engine, request)
            assert answered.admitted is not None
            if number % 3 == 0:
                assert answered.admitted.scores == ()
                return
            assert list(answered.admitted.scores) == scores_of(prompt, 1)
            for choice in range(n):
                tokens = expected(prompt, number + choice, count)
                assert answered.tokens[choice] == tokens
                assert answered.scores[choice] == scores_of(prompt + tokens, len(prompt))

        await asyncio.gather(*(one(number) for number in range(90)))
    if blocks == 16:
        assert counted(engine, "preemptions") > 0


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_prompt_can_be_scored_without_an_answer(ahead: bool) -> None:
    prompt = [5, 6, 7, 8]
    async with serving(recall_model(launch_ahead=ahead)) as engine:
        answered = await collect(engine, ask(prompt, 0, scored=True))
    assert answered.admitted == Admitted(4, 0, tuple(scores_of(prompt, 1)))
    assert answered.tokens == {0: []}
    assert answered.finishes == {0: Tokens(0, (), FinishReason.LENGTH)}


async def test_the_token_that_stops_is_scored_too() -> None:
    tokens = expected([5, 6], 1, 20)
    async with serving(recall_model()) as engine:
        request = ask([5, 6], 20, seed=1, stop_ids=frozenset({tokens[0]}), scored=True)
        answered = await collect(engine, request)
    assert answered.tokens[0] == []
    assert answered.scores[0] == [score([5, 6], tokens[0])]


async def test_a_failed_step_takes_no_scores_away() -> None:
    model = recall_model(fail_on=CURSED, launch_ahead=True)
    async with serving(model, step_tokens=1) as engine:
        older = asyncio.create_task(collect(engine, ask([1, 2, 3], 5, scored=True)))
        await asyncio.sleep(0)
        with pytest.raises(Failed):
            await collect(engine, ask([7, 7, CURSED, 4], 20))
        admitted = (await older).admitted
    assert admitted == Admitted(3, 0, tuple(scores_of([1, 2, 3], 1)))


async def test_a_step_scores_only_so_many_tokens() -> None:
    model = recall_model(max_context=1024, blocks=512)
    most = 0
    launch = model.launch

    def watched(chunks: Any) -> Any:
        nonlocal most
        most = max(most, sum(len(chunk.targets) for chunk in chunks))
        return launch(chunks)

    model.launch = watched  # type: ignore[method-assign]
    prompts = [[i, *([1] * 300)] for i in range(3)]
    async with serving(model, step_tokens=2000) as engine:
        every = [collect(engine, ask(prompt, 1, scored=True)) for prompt in prompts]
        for prompt, answered in zip(prompts, await asyncio.gather(*every), strict=True):
            assert answered.admitted == Admitted(301, 0, tuple(scores_of(prompt, 1)))
    assert most == SCORED_TOKENS


@pytest.mark.parametrize("ahead", [False, True])
async def test_banned_tokens_are_known_when_a_token_is_sampled(ahead: bool) -> None:
    """``RecallModel`` samples what it likes; the chunks tell it what it should not."""
    model = recall_model(launch_ahead=ahead)
    tokens = expected([1, 2], 3, 12)
    banned: list[tuple[int, ...]] = []
    launch = model.launch

    def watched(chunks: Any) -> Any:
        banned.extend(chunk.banned for chunk in chunks if chunk.samples)
        return launch(chunks)

    model.launch = watched  # type: ignore[method-assign]
    words = ((96,), (2, 50), (tokens[4], tokens[5], 60), (tokens[4], 1, 61))
    async with serving(model) as engine:
        answered = await collect(engine, ask([1, 2], 12, seed=3, bad_words=words))
    assert answered.tokens[0] == tokens
    assert banned == [(96, 60) if i == 6 else (96,) for i in range(12)]


async def test_a_timeout_ends_a_begun_answer_by_length() -> None:
    async with serving(recall_model(seconds=0.02)) as engine:
        answered = await collect(engine, ask([1, 2], 60, timeout_s=0.4))
    assert answered.finishes[0].finish is FinishReason.LENGTH
    assert 0 < len(answered.tokens[0]) < 60
    assert answered.tokens[0] == expected([1, 2], 0, 60)[: len(answered.tokens[0])]


async def test_a_timeout_before_the_first_token_is_an_error() -> None:
    """In the queue, and in the middle of a prompt."""
    async with serving(recall_model(slots=1, seconds=0.01), step_tokens=1) as engine:
        running = asyncio.create_task(collect(engine, ask([1] * 20, 2)))
        await asyncio.sleep(0)
        with pytest.raises(TimedOut):
            await collect(engine, ask([2], 2, timeout_s=0.02))
        assert engine.admission.waiting == 0
        assert (await running).tokens[0] == expected([1] * 20, 0, 2)
        with pytest.raises(TimedOut):
            await collect(engine, ask([3] * 50, 2, timeout_s=0.03))
        assert_nothing_held(engine)


async def test_a_timeout_counts_while_a_grammar_is_compiled() -> None:
    known = threading.Event()

    def vocabulary() -> Vocabulary:
        known.wait()
        return byte_pipeline().vocabulary()

    grammars = Grammars(vocabulary, 128)
    request = replace(ask([1], 2, timeout_s=0.02), grammar=Grammar("regex", "a*"))
    try:
        async with serving(recall_model(), grammars=grammars) as engine:
            with pytest.raises(TimedOut):
                await collect(engine, request)
            assert engine.admission.running == 0
    finally:
        known.set()
        grammars.close()


async def test_a_timeout_counts_from_the_first_token_of_any_choice() -> None:
    async with serving(recall_model(slots=1, seconds=0.02)) as engine:
        answered = await collect(engine, ask([1, 2], 60, n=2, timeout_s=0.4))
    assert [answered.finishes[i].finish for i in range(2)] == [FinishReason.LENGTH] * 2
    assert answered.tokens[1] == []


async def test_the_lower_priority_goes_first() -> None:
    order: list[int] = []
    async with serving(recall_model(slots=1, seconds=0.002)) as engine:

        async def one(priority: int) -> None:
            await collect(engine, ask([1], 2, priority=priority))
            order.append(priority)

        await asyncio.gather(*(one(priority) for priority in (0, 5, 1, -3, 2)))
    assert order == [0, -3, 1, 2, 5]


async def test_users_take_turns() -> None:
    order: list[str] = []
    async with serving(recall_model(slots=1, seconds=0.002)) as engine:

        async def one(key: str) -> None:
            await collect(engine, ask([1], 3, user=User(key)))
            order.append(key)

        await asyncio.gather(*(one(key) for key in "aaaaabb"))
    assert order == [*"ababaaa"]


@pytest.mark.parametrize("n", [1, 2])
async def test_who_fills_the_queue_gives_way(n: int) -> None:
    """What gives way is as if it had been refused at once."""
    async with serving(recall_model(slots=1, seconds=0.002), waiting=2 * n) as engine:
        running = asyncio.create_task(collect(engine, ask([1], 20, user=User("a"))))
        queued = [
            asyncio.create_task(collect(engine, ask([1, i], 2, n=n, user=User("a"))))
            for i in range(2)
        ]
        await asyncio.sleep(0.01)
        other = await collect(engine, ask([2], 2, n=n, user=User("b")))
        assert other.tokens[n - 1] == expected([2], n - 1, 2)
        with pytest.raises(Busy, match="are waiting"):
            await queued[1]
        assert (await running).tokens[0] == expected([1], 0, 20)
        assert (await queued[0]).tokens[0] == expected([1, 0], 0, 2)
        assert counted(engine, "requests_rejected") == 1
        assert counted(engine, "requests_finished", reason="length") == 1 + 2 * n
        assert counted(engine, "requests_finished", reason="cancelled") == 0


async def test_what_is_found_in_the_cache_is_not_charged() -> None:
    """One user's prompts are all the same, the other's all different."""
    order: list[str] = []
    async with serving(recall_model(slots=1, seconds=0.001)) as engine:

        async def one(key: str, number: int) -> None:
            prompt = [1] * 40 if key == "a" else [number] * 40
            await collect(engine, ask(prompt, 1, user=User(key)))
            order.append(key)

        await asyncio.gather(*(one(key, 2 + i) for i, key in enumerate("ab" * 12)))
    assert order[:17].count("a") == 12


@pytest.mark.parametrize("wish", [{"allowed_token_ids": (1, 98)}, {"logit_bias": {1: 2, 98: 2}}])
async def test_wishes_for_tokens_that_the_model_does_not_have_are_refused(
    wish: dict[str, Any],
) -> None:
    request = ask([1], 2)
    sampling = replace(request.sampling, **wish)
    async with serving(recall_model()) as engine:
        with pytest.raises(Invalid, match="98 is outside the model's 98 tokens") as refused:
            await collect(engine, replace(request, sampling=sampling))
    assert [refused.value.param] == [*wish]

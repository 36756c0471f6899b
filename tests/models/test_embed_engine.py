from __future__ import annotations

import asyncio
import pickle
import struct

import pytest

from models.batcher import packed
from models.embed_engine import EmbedEngine
from models.embedding import TokenInputs
from models.errors import Busy, Failed, Invalid
from models.request import User
from tests.models.embedding import ask, running
from tests.models.tallying import TallyModel, vector


def unpack(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 4}f", data))


async def batches_begun(model: TallyModel, count: int) -> None:
    for _ in range(1000):
        if len(model.batches) >= count:
            return
        await asyncio.sleep(0.002)
    raise AssertionError(model.batches)


def measured(engine: EmbedEngine) -> dict[str, float]:
    return {
        "/".join([name, *(value for key, value in labels if key == "reason")]): value
        for name, labels, value in engine.metrics.samples()
    }


async def test_vectors_come_in_the_order_of_the_inputs_whatever_their_batches() -> None:
    texts = ["a", "abc" * 10, "bb", "c" * 20, "dada"]
    model = TallyModel()
    async with running(model) as engine:
        embedded = await engine.embed(ask(*texts))
    expected = [vector(text.encode()) for text in texts]
    assert [unpack(one) for one in embedded.vectors] == expected
    assert embedded.prompt_tokens == sum(map(len, texts))
    assert len(model.batches) > 1
    assert len(model.threads) == 1


async def test_a_small_request_need_not_wait_for_all_of_a_large_one() -> None:
    model = TallyModel()
    async with running(model) as engine:
        model.go.clear()
        large = asyncio.create_task(engine.embed(ask(*["a"] * 40)))
        await batches_begun(model, 1)
        small = asyncio.create_task(engine.embed(ask("d")))
        await asyncio.sleep(0.01)
        model.go.set()
        await small
        assert not large.done()
        await large
    assert b"d" in model.batches[1]


async def test_a_cancelled_request_is_gone_at_once_and_the_rest_of_it_never_computed() -> None:
    model = TallyModel()
    async with running(model) as engine:
        model.go.clear()
        large = asyncio.create_task(engine.embed(ask(*["a"] * 40)))
        await batches_begun(model, 1)
        large.cancel()
        with pytest.raises(asyncio.CancelledError):  # though its batch is still being computed
            await asyncio.wait_for(large, 1)
        assert engine.admission.running == 0
        model.go.set()
        await engine.embed(ask("b"))
        assert measured(engine)["stepserve_requests_finished_total/cancelled"] == 1
    assert model.batches == [[b"a", b"a"], [b"b"]]


async def test_who_does_not_fit_waits_and_then_is_turned_away() -> None:
    model = TallyModel()
    async with running(model, max_running=1, max_waiting=1) as engine:
        model.go.clear()
        tasks = [asyncio.create_task(engine.embed(ask(text))) for text in "ab"]
        await batches_begun(model, 1)
        assert (engine.admission.running, engine.admission.waiting) == (1, 1)
        with pytest.raises(Busy) as busy:
            await engine.embed(ask("c"))
        assert busy.value.retry_after >= 1
        model.go.set()
        await asyncio.gather(*tasks)
        assert measured(engine)["stepserve_requests_rejected_total"] == 1
        assert measured(engine)["stepserve_requests_finished_total/stop"] == 2
        assert measured(engine)["stepserve_prompt_tokens_total"] == 2
        assert measured(engine)["stepserve_step_sequences_sum"] == 2
        assert measured(engine)["stepserve_request_prompt_tokens_count"] == 2
        assert measured(engine)["stepserve_request_generated_tokens_count"] == 0


async def test_users_take_turns_and_who_fills_the_queue_gives_way() -> None:
    model, heavy = TallyModel(), User("heavy")
    async with running(model, max_running=1, max_waiting=3) as engine:
        model.go.clear()
        tasks = [asyncio.create_task(engine.embed(ask(text, user=heavy))) for text in "abcd"]
        await batches_begun(model, 1)
        light = asyncio.create_task(engine.embed(ask("e", user=User("light"))))
        with pytest.raises(Busy, match="3 requests are waiting"):
            await tasks.pop()
        model.go.set()
        await asyncio.gather(light, *tasks)
        assert measured(engine)["stepserve_requests_rejected_total"] == 1
        assert measured(engine)["stepserve_requests_finished_total/stop"] == 4
        assert measured(engine)["stepserve_requests_finished_total/error"] == 0
    assert model.batches == [[b"a"], [b"e"], [b"b"], [b"c"]]


async def test_a_failing_batch_is_told_and_remembered() -> None:
    async with running(TallyModel()) as engine:
        with pytest.raises(Failed, match="RuntimeError: this token is cursed"):
            await engine.embed(ask("!"))
        assert engine.batcher.failure == "RuntimeError: this token is cursed"
        assert measured(engine)["stepserve_requests_finished_total/error"] == 1
        assert unpack((await engine.embed(ask("a"))).vectors[0]) == [1, 0, 0, 0]


async def test_what_is_not_a_number_fails_its_request_alone() -> None:
    async with running(TallyModel()) as engine:
        well, ill = await asyncio.gather(
            engine.embed(ask("a")), engine.embed(ask("?")), return_exceptions=True
        )
        assert isinstance(ill, Failed)
        assert not isinstance(well, BaseException)
        assert engine.batcher.failure is None


async def test_a_token_that_the_model_does_not_know() -> None:
    async with running(TallyModel()) as engine:
        with pytest.raises(Invalid, match="Token id 261 is outside the model's 261 tokens"):
            await engine.embed(TokenInputs(((1,), (261,))))


async def test_dimensions_are_for_models_that_allow_them() -> None:
    async with running(TallyModel(), fewest=2) as engine:
        (whole,) = (await engine.embed(ask("aaabbbbcdd", dimensions=4))).vectors
        (cut,) = (await engine.embed(ask("aaabbbbcdd", dimensions=2))).vectors
        assert unpack(whole) == [3, 4, 1, 2]
        assert sum(x * x for x in unpack(cut)) == pytest.approx(3**2 + 4**2 + 1 + 2**2)
        assert unpack(cut)[0] / unpack(cut)[1] == pytest.approx(3 / 4)
        for wrong in (1, 5):
            with pytest.raises(Invalid, match="must be from 2 to 4") as refused:
                await engine.embed(ask("a", dimensions=wrong))
            assert refused.value.param == "dimensions"
    async with running(TallyModel()) as engine:
        with pytest.raises(Invalid, match="have 4 dimensions: other numbers"):
            await engine.embed(ask("a", dimensions=2))
        assert len((await engine.embed(ask("a", dimensions=4))).vectors[0]) == 16


async def test_more_dimensions_than_there_are_cannot_be_the_fewest() -> None:
    with pytest.raises(ValueError, match="min_dimensions is 5, but the model's vectors have 4"):
        async with running(TallyModel(), fewest=5):
            pass


def test_the_first_dimensions_may_all_be_zero() -> None:
    assert packed([0.0, 0.0, 1.0], 2) == struct.pack("<2f", 0, 0)


async def test_a_model_that_says_one_thing_and_does_another() -> None:
    model = TallyModel()
    model.dimensions = 5
    async with running(model) as engine:
        with pytest.raises(Failed, match="not that many of 5 dimensions"):
            await engine.embed(ask("a"))


def test_what_crosses_a_hop_can_be_pickled() -> None:
    request = ask("a", "b", dimensions=2)
    assert pickle.loads(pickle.dumps(request)) == request

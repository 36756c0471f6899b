"""Several keys and users at one slow model, through the whole application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette

from models.schedule.admission import Admission
from tests.deployments.serving import HELLO, eventually, post
from tests.deployments.spelled import answering, spelling
from tests.models.spelling import Spelling

ANSWER = "ab"
TOKENS = len(ANSWER) + 1  # its end too


class Clients:
    """They ask a model that answers one at a time, while four more may wait."""

    def __init__(self, app: Starlette, model: Spelling) -> None:
        self.answered: list[str] = []
        self.refused: list[str] = []
        self.refusals: list[httpx.Response] = []
        self._app = app
        self._model = model
        self._asking: list[asyncio.Task[None]] = []

    async def ask(self, count: int, key: str, user: str | None = None) -> None:
        """Requests that the server has taken or refused by then."""
        for _ in range(count):
            self._asking.append(asyncio.create_task(self._one(key, user)))
        await eventually(lambda: self._held + len(self.refused) == len(self._asking))

    async def all(self) -> None:
        """Lets the model answer them, one by one."""
        for count in range(len(self._asking) - len(self.refused)):
            self._model.let(TOKENS)
            await self._until(count + 1)
        await asyncio.gather(*self._asking)

    async def _until(self, count: int) -> None:
        await eventually(lambda: len(self.answered) >= count)

    @property
    def _held(self) -> int:
        admission: Admission = self._app.state.admission
        return admission.running + admission.waiting

    async def _one(self, key: str, user: str | None) -> None:
        body = {"model": "mock", "messages": HELLO, "temperature": 0, "user": user}
        answer = await post(self._app, "/v1/chat/completions", body, authorization=f"Bearer {key}")
        if answer.status_code == 200:
            self.answered.append(user or key)
        else:
            self.refused.append(user or key)
            self.refusals.append(answer)


@asynccontextmanager
async def asking() -> AsyncGenerator[Clients, None]:
    """Afterwards all are answered."""
    model = spelling(ANSWER, paced=True)
    with answering(model, running=1, api_keys=["heavy", "light"]) as app:
        clients = Clients(app, model)
        yield clients
        await clients.all()


async def test_a_lone_request_is_next_and_the_last_of_who_fills_the_queue_is_refused() -> None:
    async with asking() as clients:
        await clients.ask(5, "heavy")
        await clients.ask(1, "light")
    assert clients.answered == ["heavy", "light", "heavy", "heavy", "heavy"]
    [refusal] = clients.refusals
    assert (clients.refused, refusal.status_code) == (["heavy"], 503)
    assert int(refusal.headers["retry-after"]) >= 1
    assert "4 requests are waiting" in refusal.json()["error"]["message"]


async def test_whoever_has_most_is_refused_and_others_are_not() -> None:
    """Users of one key."""
    async with asking() as clients:
        await clients.ask(5, "heavy", "ann")
        await clients.ask(3, "heavy", "bob")
    assert sorted(clients.refused) == ["ann", "ann", "bob"]
    assert clients.answered == ["ann", "bob", "ann", "bob", "ann"]


async def test_naming_users_gains_nothing_beside_another_key() -> None:
    async with asking() as clients:
        for i in range(3):
            await clients.ask(1, "heavy", f"user {i}")
        await clients.ask(2, "light")
        await clients.ask(1, "heavy", "user 3")
    assert clients.refused == ["user 3"]
    assert clients.answered == ["user 0", "light", "user 1", "light", "user 2"]

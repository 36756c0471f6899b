"""The router as Serve makes it and asks it, over replicas that nobody runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from ray.serve._private.common import (
    DeploymentHandleSource,
    DeploymentID,
    ReplicaID,
    RequestMetadata,
)
from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import PendingRequest

from configs.settings import AppSettings
from deployments.affinity import CHUNK
from deployments.app import build
from models.request import SamplingParams
from models.tokens import TokenRequest
from tests.deployments.graphs import bound

DEPLOYMENT = DeploymentID(name="Model", app_name="test")
PLACES = 8
OTHER = {"a": "b", "b": "a"}


@dataclass
class Replica:
    """What the router asks of one."""

    name: str
    load: int = 0
    max_ongoing_requests: int = 100
    multiplexed_model_ids: tuple[str, ...] = ()
    node_id: str = "node"
    availability_zone: str | None = None

    @property
    def replica_id(self) -> ReplicaID:
        return ReplicaID(self.name, DEPLOYMENT)

    async def get_queue_len(self, *, deadline_s: float) -> int:
        return self.load


class Routing:
    """A router, as the configuration of the graph names it, that has heard of these replicas."""

    def __init__(self, *names: str) -> None:
        engine = {"max_running": PLACES}
        models = [{"name": "a", "factory": "a:b", "engine": engine}]
        model = bound(build(AppSettings.model_validate({"models": models})))["Model-a"]
        config: RequestRouterConfig = model._deployment_config.request_router_config
        self.router: Any = config.get_request_router_class()(
            deployment_id=DEPLOYMENT,
            handle_source=DeploymentHandleSource.REPLICA,
            use_replica_queue_len_cache=True,
        )
        self.router.initialize_state(**config.request_router_kwargs)
        self.set_replicas(*names)

    def set_replicas(self, *names: str) -> None:
        self.router.update_replicas([Replica(name) for name in names])
        for name in names:
            self.set_load(name, 0)

    def set_load(self, name: str, load: int) -> None:
        replica_id = ReplicaID(name, DEPLOYMENT)
        self.router.curr_replicas[replica_id].load = load
        self.router.on_new_queue_len_info(replica_id, load)

    async def route(self, *args: object) -> str:
        """Sends a request on its way, which stays with its replica; whose that is."""
        metadata = RequestMetadata("request", "the same for all", app_name="test")
        pending = PendingRequest(list(args), {}, metadata)
        replica = await self.router._choose_replica_for_request(pending)
        replica.load += 1
        self.router.on_send_request(replica.replica_id)
        name: str = replica.name
        return name


def asking(group: int, own: int, key: str | None = None) -> TokenRequest:
    """Its group shares four chunks; the chunk behind them is its own."""
    ids = (group,) * CHUNK * 4 + (own,) * CHUNK
    return TokenRequest(str(own), ids, SamplingParams(), frozenset(), cache_key=key)


def short(own: int, key: str | None = None) -> TokenRequest:
    return TokenRequest(str(own), (own,), SamplingParams(), frozenset(), cache_key=key)


async def test_requests_that_begin_alike_go_to_the_same_replica() -> None:
    routing = Routing("a", "b", "c")
    for group in range(1, 9):
        went = set()
        for own in range(100, 104):
            went.add(name := await routing.route(asking(group, own)))
            routing.set_load(name, 0)
        assert len(went) == 1


async def test_a_hot_beginning_spreads() -> None:
    routing = Routing("a", "b")
    went = [await routing.route(asking(1, own)) for own in range(100, 112)]
    assert len(set(went[:3])) == 1
    assert 3 <= went.count("a") <= 9


async def test_nobody_waits_at_home_while_another_has_a_place() -> None:
    routing = Routing("a", "b")
    home = await routing.route(asking(1, 100))
    routing.set_load(home, PLACES)
    routing.set_load(other := OTHER[home], PLACES - 1)
    assert await routing.route(asking(1, 101)) == other


async def test_where_it_went_last_is_its_home() -> None:
    routing = Routing("a", "b")
    home = await routing.route(asking(1, 100))
    routing.set_load(home, 50)
    assert await routing.route(asking(1, 101)) == OTHER[home]
    routing.set_load(home, 1)
    assert await routing.route(asking(1, 102)) == OTHER[home]
    assert await routing.route(asking(1, 100)) == home


async def test_a_replica_that_is_gone_is_nobodys_home() -> None:
    routing = Routing("a", "b", "c")
    home = await routing.route(asking(1, 100))
    left = {"a", "b", "c"} - {home}
    routing.set_replicas(*left)
    new = await routing.route(asking(1, 101))
    assert new in left
    routing.set_replicas("a", "b", "c")
    assert await routing.route(asking(1, 102)) == new


async def test_a_home_that_takes_no_more_is_passed_over() -> None:
    routing = Routing("a", "b")
    home = await routing.route(asking(1, 100))
    routing.set_load(home, 100)
    routing.router.on_replica_actor_unavailable(ReplicaID(home, DEPLOYMENT))  # now it is asked
    assert await routing.route(asking(1, 101)) == OTHER[home]


async def test_routers_agree_about_cache_keys() -> None:
    one, other = Routing("a", "b", "c"), Routing("c", "b", "a")
    for key in map(str, range(20)):
        went = [await side.route(asking(1, int(key), key)) for side in (one, other)]
        assert went[0] == went[1]
        for side in (one, other):
            side.set_load(went[0], 0)


async def test_a_short_prompt_with_a_key_has_a_home_too() -> None:
    routing = Routing("a", "b")
    went = set()
    for own in range(8):
        went.add(name := await routing.route(short(own, "ann")))
        routing.set_load(name, 0)
    assert len(went) == 1


@pytest.mark.parametrize("args", [[], ["describe"], [short(1)]])
async def test_other_calls_spread(args: list[object]) -> None:
    routing = Routing("a", "b")
    went = [await routing.route(*args) for _ in range(6)]
    assert set(went) == {"a", "b"}


async def test_one_replica_takes_all() -> None:
    routing = Routing("a")
    assert {await routing.route(asking(own, own)) for own in range(20)} == {"a"}

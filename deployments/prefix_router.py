"""Serve's router for the replicas of a Model: requests that begin alike go to the same one.

Only as long as that one is not much busier than the others, and only where there are others; else
all is as Serve's own router has it. Serve pickles this module by value.
"""

from __future__ import annotations

import math
from typing import Any

from ray.serve._private.request_router.pow_2_router import PowerOfTwoChoicesRequestRouter
from ray.serve.request_router import PendingRequest, RunningReplica

from deployments.affinity import Homes, Request, beginnings, by_key, roomy
from models.request import GenerateRequest
from models.tokens import TokenRequest

Ranks = list[list[RunningReplica]]


class PrefixRouter(PowerOfTwoChoicesRequestRouter):
    def initialize_state(self, **kwargs: Any) -> None:
        """``places``: how many requests a replica serves at once."""
        self._places: int = kwargs["places"]
        self._homes = Homes()

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> Ranks:
        """See ``RequestRouter``: ranks of replicas, of which the first with a free one is taken."""
        ranks = await super().choose_replicas(candidate_replicas, pending_request)
        if len(candidate_replicas) < 2 or pending_request is None:
            return ranks
        match pending_request.args:
            case [TokenRequest() | GenerateRequest() as request, *_]:
                return self._homeward(request, candidate_replicas, ranks)
        return ranks

    def _homeward(self, request: Request, replicas: list[RunningReplica], ranks: Ranks) -> Ranks:
        named = {replica.replica_id.unique_id: replica for replica in replicas}
        free = roomy({name: self._load(one) or 0 for name, one in named.items()}, self._places)
        begins = beginnings(request)
        home = self._homes.of(begins, free)
        if home is None and request.cache_key is not None:
            home = by_key(request.cache_key, free)
        self._homes.settle(begins, home or self._likeliest(ranks))
        return ranks if home is None else [[named[home]], *ranks]

    def _likeliest(self, ranks: Ranks) -> str:
        """Whom Serve takes: of the first rank, who is known to have least to do."""
        loads = {one.replica_id.unique_id: self._load(one) for one in ranks[0]}
        return min(loads, key=lambda name: math.inf if (load := loads[name]) is None else load)

    def _load(self, replica: RunningReplica) -> int | None:
        """Its requests, of all callers; None if that is not known of late."""
        load: int | None = self.replica_queue_len_cache.get(replica.replica_id)
        return load

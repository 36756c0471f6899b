from __future__ import annotations

import asyncio

from deployments.rates.at_once import SLOT_S, Place
from deployments.rates.counts import LenientCounts, MemoryCounts
from tests.deployments.rates.clock import Clock


class Places:
    """Of one key."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._counts = MemoryCounts(self.clock)

    async def take(self) -> Place:
        place = Place("ann", LenientCounts(self._counts), self.clock)
        await self._counts.add(place.claim())
        return place

    async def free(self, place: Place) -> None:
        await self._counts.add(place.release())

    async def taken(self) -> int:
        """As the next one would find, less its own."""
        place = Place("ann", LenientCounts(self._counts), self.clock)
        taken = place.taken(await self._counts.add(place.claim()))
        await self.free(place)
        return taken - 1


async def test_places_are_counted_until_their_release() -> None:
    places = Places()
    first, second = await places.take(), await places.take()
    assert await places.taken() == 2
    await places.free(first)
    places.clock.pass_by(SLOT_S)
    assert await places.taken() == 1
    await places.free(second)
    assert await places.taken() == 0


async def test_a_place_is_kept_from_slot_to_slot() -> None:
    places = Places()
    place = await places.take()
    places.clock.pass_by(SLOT_S)
    place.keep()  # the next slot has begun, so it is renewed at once
    for _ in range(5):
        await asyncio.sleep(0)
    places.clock.pass_by(SLOT_S)
    assert await places.taken() == 1
    await places.free(place)
    assert await places.taken() == 0
    places.clock.pass_by(SLOT_S)
    assert await places.taken() == 0


async def test_the_place_of_an_ingress_that_died_is_free_again() -> None:
    places = Places()
    await places.take()
    places.clock.pass_by(2 * SLOT_S)
    assert await places.taken() == 0

from __future__ import annotations

import torch

from configs.settings import EngineSettings
from models.build import wishes_of
from models.step.assemble import assemble
from tests.bench.roofline import HEADER, Work, build, covered, measure, rates, row


def test_the_benchmark_runs_on_a_cpu() -> None:
    device = torch.device("cpu")
    model = build("small", device, torch.float32)
    settings = EngineSettings(max_running=4, max_context=64, prefix_cache=False)
    served = assemble(model, wishes_of(settings))
    peaks = rates(device, torch.float32, mib=1, side=64)
    for work in (Work(1, 32, 8), Work(4, 32, 8), Work(1, 48, 0)):
        result = measure(served, work)
        assert result.seconds > 0
        assert row(model, result, peaks).count("|") == HEADER.splitlines()[0].count("|")


def test_intervals_that_overlap_count_once() -> None:
    assert covered([(0, 2), (1, 3), (5, 6), (5.5, 5.7)]) == 4
    assert covered([]) == 0

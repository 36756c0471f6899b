from __future__ import annotations

import torch

from configs.settings import EngineSettings
from models.build import wishes_of
from models.step.assemble import assemble
from tests.bench.roofline import HEADER, build, covered, measure, rates, row
from tests.bench.work import Work, bytes_read, flops, weights_of


def test_the_benchmark_runs_on_a_cpu() -> None:
    device = torch.device("cpu")
    model = build("small", device, torch.float32)
    settings = EngineSettings(max_running=4, max_context=64, prefix_cache=False)
    weights = weights_of(model)
    served = assemble(model, wishes_of(settings))
    peaks = rates(device, torch.float32, mib=1, side=64)
    for work in (Work(1, 32, 8), Work(4, 32, 8), Work(1, 48, 0)):
        result = measure(served, work)
        assert result.seconds > 0
        assert row(weights, result, peaks).count("|") == HEADER.splitlines()[0].count("|")


def test_a_step_reads_all_weights_and_every_key() -> None:
    weights = weights_of(build("small", torch.device("cpu"), torch.bfloat16))
    assert weights.bytes == 2 * weights.count
    assert bytes_read(weights, Work(3, 10, 4)) == weights.bytes + 3 * 12 * (2 * 16 * 2) * 2 * 2
    linear = 2 * (64 * (64 + 32 + 32 + 64) + 3 * 64 * 128) + 5 * 64  # and five norms
    assert flops(weights, Work(2, 10, 0)) == 2 * (2 * linear * 10 + 4 * 55 * 4 * 16 * 2)


def test_intervals_that_overlap_count_once() -> None:
    assert covered([(0, 2), (1, 3), (5, 6), (5.5, 5.7)]) == 4
    assert covered([]) == 0

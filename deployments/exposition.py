"""Prometheus text over all replicas of all models, summed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from deployments.batches.desk import Counts
from deployments.batches.families import families
from deployments.vllm_metrics import with_vllm_names
from models.metric_table import METRICS, OF_LIMITS, Kind, Metric
from models.metrics import Sample


@dataclass(frozen=True, slots=True)
class Scrape:
    """What is known of the replicas of one model, how many there are, and how many answered."""

    answers: tuple[list[Sample], ...]
    replicas: int
    scraped: int


class Scrapes:
    """One model's scrapes. A replica that is late counts as it last did."""

    def __init__(self) -> None:
        self._known: dict[str, list[Sample]] = {}

    def take(self, answers: Sequence[tuple[str, list[Sample]] | None]) -> Scrape:
        """``answers`` are replicas' ids and samples, None for one that did not answer."""
        heard = dict(answer for answer in answers if answer is not None)
        silent = [name for name in self._known if name not in heard]
        late = silent[: len(answers) - len(heard)]
        self._known = {**{name: self._known[name] for name in late}, **heard}
        return Scrape(tuple(self._known.values()), len(answers), len(heard))


def render(
    scrapes: Mapping[str, Scrape],
    limits: Scrape | None = None,
    batches: Counts | None = None,
    *,
    vllm_names: bool = False,
) -> str:
    """Prometheus text: each metric summed over the answers; what is missing is shown as such.

    ``limits`` is what the replicas of the ingress tell of rate limits, where there are any.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Merged(scrapes, limits, batches or {}, vllm_names))
    return generate_latest(registry).decode()


class _Merged(Collector):
    def __init__(
        self,
        scrapes: Mapping[str, Scrape],
        limits: Scrape | None,
        batches: Counts,
        vllm_names: bool,
    ) -> None:
        self._scrapes = scrapes
        self._limits = limits
        self._batches = batches
        self._vllm_names = vllm_names

    def collect(self) -> Iterator[Family]:
        models = (answer for scrape in self._scrapes.values() for answer in scrape.answers)
        own = _summed(METRICS, models)
        yield from with_vllm_names(own) if self._vllm_names else own
        if self._limits is not None:
            yield from _summed(OF_LIMITS, self._limits.answers)
        replicas = GaugeMetricFamily(
            "stepserve_replicas", "Model replicas that should be in these sums.", labels=["model"]
        )
        scraped = GaugeMetricFamily(
            "stepserve_replicas_scraped", "Model replicas that answered just now.", labels=["model"]
        )
        for model, scrape in self._scrapes.items():
            replicas.add_metric([model], scrape.replicas)
            scraped.add_metric([model], scrape.scraped)
        yield replicas
        yield scraped
        yield from families(self._batches)


def _summed(metrics: Iterable[Metric], answers: Iterable[list[Sample]]) -> Iterator[Family]:
    sums: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for answer in answers:
        for name, labels, value in answer:
            row = sums.setdefault(name, {})
            row[labels] = row.get(labels, 0.0) + value
    for metric in metrics:
        family = Family(metric.family, metric.help, metric.kind.value)
        for name in _sample_names(metric):
            for labels, value in sums.get(name, {}).items():
                family.add_sample(name, dict(labels), value)
        yield family


def _sample_names(metric: Metric) -> tuple[str, ...]:
    if metric.kind is Kind.HISTOGRAM:
        return tuple(metric.name + suffix for suffix in ("_bucket", "_count", "_sum"))
    return (metric.name,)

"""The dashboard asks for nothing that ``/metrics`` does not tell."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from deployments.exposition import Scrape, render
from models.metric_table import METRICS
from models.metrics import LlmMetrics
from tests.serving import ROOT

DASHBOARD = json.loads((ROOT / "configs" / "grafana" / "stepserve.json").read_text())
OF_PROMETHEUS = {"instance"}  # which it adds to all that it scrapes
SELECTED = re.compile(r"(stepserve_\w+)\{([^}]*)\}")


def exposed() -> dict[str, set[str]]:
    """The labels of each sample of a real exposition, by its name."""
    labels: dict[str, set[str]] = defaultdict(set)
    text = render({"a": Scrape((LlmMetrics("a").samples(),), 1, 1)})
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels[sample.name] |= sample.labels.keys()
    return labels


def targets() -> Iterator[dict[str, Any]]:
    for panel in DASHBOARD["panels"]:
        yield from panel.get("targets", ())


def test_every_metric_and_label_of_its_queries_exists() -> None:
    known = exposed()
    for target in targets():
        names = set(re.findall(r"stepserve_\w+", target["expr"]))
        labels = set.intersection(*(known[name] for name in names))
        grouped = {
            one for by in re.findall(r"by \(([^)]*)\)", target["expr"]) for one in by.split(", ")
        }
        assert {name for name, _ in SELECTED.findall(target["expr"])} == names
        for _, selector in SELECTED.findall(target["expr"]):
            assert set(re.findall(r"(\w+)=", selector)) <= labels | OF_PROMETHEUS
        assert grouped <= labels
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= grouped


def test_it_shows_every_metric() -> None:
    asked = " ".join(target["expr"] for target in targets())
    assert [metric.name for metric in METRICS if metric.name not in asked] == []


def test_its_variables_exist() -> None:
    known = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD)))
    assert used == known
    queries = [variable["query"] for variable in DASHBOARD["templating"]["list"]]
    assert queries[0] == "prometheus"
    for query in queries[1:]:
        assert set(re.findall(r"stepserve_\w+", query)) <= exposed().keys()


def test_panels_are_told_apart_and_lie_beside_each_other() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24

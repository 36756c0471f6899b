"""Spans of a server that is told to trace, as a collector gets them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.serving import ROOT, serving

pytestmark = pytest.mark.slow

MOCK = ROOT / "configs" / "presets" / "mock.yaml"
NAMES = "Ingress __call__", "Model-mock generate"  # each of another process
PATIENCE_S = 60
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BODY = {"model": "mock", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A URL, and what is sent there."""
    taken: list[ExportTraceServiceRequest] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            taken.append(ExportTraceServiceRequest.FromString(data))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", taken
        server.shutdown()
        thread.join()


def spans_of(requests: Sequence[ExportTraceServiceRequest]) -> list[Span]:
    scopes = (scope for one in requests for by in one.resource_spans for scope in by.scope_spans)
    return [span for scope in scopes for span in scope.spans]


def found(name: str, requests: Sequence[ExportTraceServiceRequest]) -> list[Span]:
    return [one for one in spans_of(requests) if one.name == f"replica_handle_request {name}"]


def service(request: ExportTraceServiceRequest) -> str:
    (resource,) = request.resource_spans
    told = {one.key: one.value.string_value for one in resource.resource.attributes}
    return str(told["service.name"])


def parents(span: Span, spans: Sequence[Span]) -> Iterator[str]:
    """The ids of all spans around this one, from within."""
    parent = span.parent_span_id
    yield parent.hex()
    for one in spans:
        if one.span_id == parent:
            yield from parents(one, spans)


def test_a_clients_trace_goes_on_through_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are not sampled here."""
    monkeypatch.setenv("RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH", "deployments.tracing:otlp")
    monkeypatch.setenv("RAY_SERVE_TRACING_SAMPLING_RATIO", "0")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")  # ms between exports
    with collector() as (url, taken):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        with serving(MOCK) as server, httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
            for more in (headers, {}):
                answer = http.post("/v1/chat/completions", json=BODY, headers=more)
                assert answer.status_code == 200
            until = time.monotonic() + PATIENCE_S
            while not all(found(name, taken) for name in NAMES) and time.monotonic() < until:
                time.sleep(0.2)
    spans = spans_of(taken)
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert {service(request) for request in taken} == {"stepserve"}
    (ingress,), (model,) = (found(name, taken) for name in NAMES)
    assert ingress.span_id.hex() in parents(model, spans)
    assert PARENT in parents(ingress, spans)
    told = {attribute.key: attribute.value for attribute in ingress.attributes}
    assert told["gen_ai.request.model"].string_value == "mock"
    assert told["gen_ai.usage.output_tokens"].int_value == 3
    assert told["gen_ai.latency.time_to_first_token"].double_value > 0
    (reason,) = told["gen_ai.response.finish_reasons"].array_value.values
    assert reason.string_value == "length"

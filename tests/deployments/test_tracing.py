from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer
from starlette.applications import Starlette

from deployments.ingress import create_app
from deployments.tracing import describe, otlp
from models.mock import MockEngine
from tests.deployments.serving import Probes, chat, make_settings

Spans = tuple[Tracer, InMemorySpanExporter]


@pytest.fixture
def spans() -> Iterator[Spans]:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    yield provider.get_tracer("test"), kept
    provider.shutdown()


def told(engine: MockEngine) -> Starlette:
    return create_app({"mock": engine}, make_settings(engine), Probes(), describe=describe)


async def span_of(spans: Spans, engine: MockEngine, **body: object) -> ReadableSpan:
    tracer, kept = spans
    with tracer.start_as_current_span("request"):
        await chat(told(engine), **body)
    (span,) = kept.get_finished_spans()
    return span


async def test_an_answer_is_told_of_in_its_span(spans: Spans) -> None:
    span = await span_of(spans, MockEngine("mock"), max_tokens=2, n=2, stream=True)
    assert span.attributes is not None
    seen = dict(span.attributes)
    assert seen.pop("gen_ai.latency.time_to_first_token")
    assert seen == {
        "gen_ai.request.model": "mock",
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.response.finish_reasons": ("length",),
    }
    assert span.status.status_code is StatusCode.UNSET


async def test_a_callers_mistake_is_no_failure_of_the_span(spans: Spans) -> None:
    span = await span_of(spans, MockEngine("mock"), temperature=-1)
    assert span.attributes is not None
    assert span.attributes["error.type"] == "invalid_request_error"
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_failed_makes_it_one(spans: Spans, stream: bool) -> None:
    engine = MockEngine("mock", failure="failed", fail_after=2)
    span = await span_of(spans, engine, stream=stream)
    assert span.status.status_code is StatusCode.ERROR


async def test_without_a_trace_nothing_is_told() -> None:
    assert (await chat(told(MockEngine("mock")))).status_code == 200


def test_spans_go_to_a_collector_in_batches() -> None:
    (processor,) = otlp()
    assert isinstance(processor, BatchSpanProcessor)
    assert isinstance(processor.span_exporter, OTLPSpanExporter)
    processor.shutdown()  # type: ignore[no-untyped-call]

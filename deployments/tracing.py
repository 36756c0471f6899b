"""OpenTelemetry: Serve makes a span of each request and of its hops; here is where they go.

Imported only where Serve is told to trace.
"""

from __future__ import annotations

import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import StatusCode

from deployments.access import Access


def otlp() -> list[SpanProcessor]:
    """To a collector, by OTLP over HTTP; the SDK's own variables (``OTEL_…``) say where it is."""
    # Serve's spans name no service otherwise, and their resource is made after this.
    os.environ.setdefault("OTEL_SERVICE_NAME", "stepserve")
    return [BatchSpanProcessor(OTLPSpanExporter())]


def describe(access: Access) -> None:
    """Tells of an answer that has ended in the span of its request."""
    span = trace.get_current_span()
    if not span.is_recording():
        return
    told = {
        "gen_ai.request.model": access.model,
        "gen_ai.usage.input_tokens": access.prompt_tokens,
        "gen_ai.usage.output_tokens": access.completion_tokens,
        "gen_ai.response.finish_reasons": access.finish.split("+") if access.finish else None,
        "gen_ai.latency.time_to_first_token": access.first_token_s,
        "error.type": access.error,
    }
    span.set_attributes({name: value for name, value in told.items() if value is not None})
    if (access.status or 0) >= 500 or (access.streaming and access.finish == "error"):
        span.set_status(StatusCode.ERROR, access.error)

"""JSON log lines on standard error, for our own loggers and for those of libraries alike."""

import logging
import sys
from typing import Any, cast

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

QUIET_LIBRARIES = ("aiohttp.access", "asyncio", "nats", "grpc", "httpx")


def configure_logs(service: str, instance: str, level: str = "info") -> None:
    """Sends every log record of this process to standard error as one JSON object a line."""

    def add_process(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["service"], event["instance"] = service, instance
        return event

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_process,
        _add_trace_ids,
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)


def get_logger(name: str) -> FilteringBoundLogger:
    """A structlog logger: `log.info("lease_lost", lease_id=...)`, events in snake case."""
    return cast(FilteringBoundLogger, structlog.stdlib.get_logger(name))


def _add_trace_ids(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = f"{context.trace_id:032x}"
        event["span_id"] = f"{context.span_id:016x}"
    return event


def bind_request(**names: Any) -> None:
    """Adds these names to every log line of the current task, usually the request id."""
    structlog.contextvars.bind_contextvars(**names)

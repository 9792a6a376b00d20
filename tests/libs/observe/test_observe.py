"""What a process says of itself, looked at from outside: its log lines, spans and metrics."""

import json
import subprocess
import sys

PROBE = """
import logging, sys, urllib.request
import observe
from pathlib import Path

settings = observe.ObserveSettings(metrics_port=0, trace_dir=Path(sys.argv[1]))
seen = observe.setup("probe", instance="probe-1", settings=settings)
log = observe.get_logger("probe")
remote = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
with observe.tracer().start_as_current_span("work", context=observe.extract(remote)):
    log.info("inside", answer=42)
    carrier = {}
    observe.inject(carrier)
    logging.getLogger("library").warning("from %s", "a library")
try:
    raise ValueError("boom")
except ValueError:
    log.exception("failed")
print(carrier["traceparent"])
print(urllib.request.urlopen(seen.metrics_url).read().decode()[:20])
seen.close()
"""


def probe(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, tmp_path], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), [json.loads(line) for line in done.stderr.splitlines()]


def test_every_log_line_is_json_with_the_process_and_the_trace(tmp_path):
    _, lines = probe(tmp_path)
    inside, library, failed = lines

    assert inside["event"] == "inside"
    assert inside["answer"] == 42
    assert {line["service"] for line in lines} == {"probe"}
    assert {line["instance"] for line in lines} == {"probe-1"}
    assert inside["trace_id"] == library["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert library["event"] == "from a library"
    assert "trace_id" not in failed
    assert "ValueError: boom" in failed["exception"]


def test_a_span_continues_the_remote_trace_and_is_written_to_the_file(tmp_path):
    out, _ = probe(tmp_path)
    (span,) = [json.loads(line) for line in (tmp_path / "probe-1.jsonl").read_text().splitlines()]

    assert span["name"] == "work"
    assert span["context"]["trace_id"] == "0x0af7651916cd43dd8448eb211c80319c"
    assert span["parent_id"] == "0xb7ad6b7169203331"
    assert out[0].split("-")[1] == "0af7651916cd43dd8448eb211c80319c"


def test_metrics_are_served(tmp_path):
    out, _ = probe(tmp_path)

    assert out[1].startswith("# HELP")

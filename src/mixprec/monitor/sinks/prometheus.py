"""The latest numbers at an address that Prometheus scrapes, in its text format; nothing but the standard library.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mixprec.monitor._record import StepRecord
from mixprec.monitor.sinks._scalars import scalars
from mixprec.monitor.sinks._sink import RunFacts, Sink
from mixprec.records import Finding

__all__ = ["PrometheusSink"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class PrometheusSink(Sink):
    """Serves `http://HOST:PORT/metrics` from a thread of its own until it is closed. Each rank adds itself to `port`.

    `port` 0 takes a free one; `address` says which. By default only this machine can ask.
    """

    every_rank = True

    def __init__(self, port: int = 9400, host: str = "127.0.0.1") -> None:
        self._port, self._host = port, host
        self._rank = 0
        self._skipped, self._benign, self._steps = 0, 0, 0
        self._alerts: dict[str, int] = {}
        self._numbers: dict[str, float] = {}
        self._step = -1
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    def begin(self, facts: RunFacts) -> None:
        """Opens the port."""
        self._rank = facts.rank
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # the name that http.server calls
                body = sink.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Says nothing."""

        port = self._port + facts.rank if self._port else 0
        self._server = ThreadingHTTPServer((self._host, port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="mixprec-prometheus", daemon=True).start()

    @property
    def address(self) -> str | None:
        """Where to ask; None while nothing is served."""
        if self._server is None:
            return None
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/metrics"

    def step(self, record: StepRecord) -> None:
        """The numbers of this step stand until the next."""
        with self._lock:
            self._steps += 1
            self._skipped += record.skipped
            self._benign += record.benign is True
            self._step = record.step
            self._numbers |= scalars(record)

    def finding(self, finding: Finding, step: int) -> None:
        """Counted by code."""
        with self._lock:
            self._alerts[finding.code] = self._alerts.get(finding.code, 0) + 1

    def close(self) -> None:
        """Closes the port."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def text(self) -> str:
        """What is served."""
        with self._lock:
            numbers, alerts = dict(self._numbers), dict(self._alerts)
            counts = {
                "steps": ("optimizer steps attempted", self._steps),
                "skipped": ("steps skipped because gradients were not finite", self._skipped),
                "skipped_benign": ("skipped steps that the search for the scale explains", self._benign),
            }
            step = self._step
        lines = _metric("step", "gauge", "number of the last recorded step", [({}, float(step))], self._rank)
        for name, (words, count) in counts.items():
            lines += _metric(f"{name}_total", "counter", words, [({}, float(count))], self._rank)
        lines += _metric(
            "alerts_total", "counter", "alerts", [({"code": c}, float(n)) for c, n in alerts.items()], self._rank
        )
        plain = {name: value for name, value in numbers.items() if "/" not in name and name != "skipped"}
        for name, value in plain.items():
            lines += _metric(name, "gauge", f"{name} of the last step that had it", [({}, value)], self._rank)
        for kind in ("headroom", "grad_headroom"):
            found = [({"module": n.partition("/")[2]}, v) for n, v in numbers.items() if n.startswith(f"{kind}/")]
            lines += _metric(f"{kind}_bits", "gauge", "bits below the format's maximum", found, self._rank)
        return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, words: str, samples: list[tuple[dict[str, str], float]], rank: int) -> list[str]:
    if not samples:
        return []
    full = f"mixprec_{name}"
    lines = [f"# HELP {full} {words}", f"# TYPE {full} {kind}"]
    for labels, value in samples:
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in {"rank": str(rank), **labels}.items())
        lines.append(f"{full}{{{pairs}}} {_number(value)}")
    return lines


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:.9g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

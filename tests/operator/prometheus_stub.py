# SPDX-License-Identifier: Apache-2.0
"""A Prometheus that answers instant queries with what a test told it to."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


class PrometheusStub:
    """Answers each query with the series whose namespace and pool it names.

    `raw` replaces the answer by (status, body), for providers that misbehave.
    """

    def __init__(self) -> None:
        self.url = ""
        self.queries: list[str] = []
        self.raw: tuple[int, bytes] | None = None
        self._series: dict[tuple[str, ...], tuple[dict[str, str], float]] = {}

    def set(self, name: str, value: float, **labels: str) -> None:
        metric = {"__name__": name, **labels}
        self._series[tuple(sorted(metric.values()))] = (metric, value)

    def clear(self, name: str, **labels: str) -> None:
        gone = {"__name__": name, **labels}.items()
        self._series = {
            key: entry for key, entry in self._series.items() if not gone <= entry[0].items()
        }

    def answer(self, query: str) -> tuple[int, bytes]:
        self.queries.append(query)
        if self.raw:
            return self.raw
        result = [
            {"metric": metric, "value": [1700000000.5, str(value)]}
            for metric, value in list(self._series.values())
            if all(f'"{metric.get(label, "")}"' in query for label in ("namespace", "pool"))
        ]
        body = {"status": "success", "data": {"resultType": "vector", "result": result}}
        return 200, json.dumps(body).encode()


@contextmanager
def prometheus_stub() -> Iterator[PrometheusStub]:
    stub = PrometheusStub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, answer = stub.answer(parse_qs(body)["query"][0])
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

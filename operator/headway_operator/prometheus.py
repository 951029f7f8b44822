# SPDX-License-Identifier: Apache-2.0
"""Instant queries to Prometheus, over HTTP.

Operator and tuner read the replicas only through this: no connection to a tenant's pod is ever
made. An endpoint comes from the process's own flags by name and never from a custom resource.
Whatever goes wrong is one exception whose text is a sentence fit for a condition.
"""

import math
from typing import Any

import httpx

from headway_operator.samples import Sample

__all__ = ["MetricsUnavailable", "Prometheus", "Sample", "parse_provider"]


class MetricsUnavailable(Exception):
    """The provider gave no usable answer; the text says which and why."""


class Prometheus:
    def __init__(self, url: str, client: httpx.AsyncClient, *, timeout_seconds: float = 5.0):
        self._url = url.rstrip("/")
        self._client = client
        self._timeout = timeout_seconds

    async def query(self, promql: str, *, at: float | None = None) -> list[Sample]:
        """Evaluate at Unix time `at`, or at the server's now. NaN samples are left out."""
        form = {"query": promql} | ({} if at is None else {"time": f"{at:.3f}"})
        try:
            response = await self._client.post(
                f"{self._url}/api/v1/query", data=form, timeout=self._timeout
            )
            answer = response.json()
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise MetricsUnavailable(f"Prometheus at {self._url}: {reason}") from error
        except ValueError as error:
            text = f"Prometheus at {self._url} answered {response.status_code} without JSON"
            raise MetricsUnavailable(text) from error
        return self._samples(response.status_code, answer)

    def _samples(self, status: int, answer: Any) -> list[Sample]:
        try:
            if answer["status"] != "success":
                reason = f"{answer.get('errorType')}: {answer.get('error')}"
                raise MetricsUnavailable(
                    f"Prometheus at {self._url} refused the query ({status}): {reason}"
                )
            if answer["data"]["resultType"] != "vector":
                raise MetricsUnavailable(f"Prometheus at {self._url}: the query gives no vector")
            samples = [
                Sample(dict(series["metric"]), float(value), float(timestamp))
                for series in answer["data"]["result"]
                for timestamp, value in [series["value"]]
            ]
        except (KeyError, TypeError, ValueError) as error:
            text = f"Prometheus at {self._url} gave an answer of an unknown form"
            raise MetricsUnavailable(text) from error
        return [sample for sample in samples if not math.isnan(sample.value)]


def parse_provider(text: str) -> tuple[str, str]:
    """Split a `NAME=URL` flag; a ValueError says what is wrong with it."""
    name, separator, url = text.partition("=")
    if not (separator and name and url.startswith(("http://", "https://"))):
        raise ValueError(f"{text!r} is not NAME=URL with an http or https URL")
    return name, url

# SPDX-License-Identifier: Apache-2.0
"""Everything a call to the Kubernetes API can fail with, as four cases that differ in what to do.

The texts are the API server's own words where it gave any: they end up in conditions.
"""

from typing import Any

UNKNOWN_FIELD = "failed to create typed patch object"
"""Server-side apply of a field that an older API server does not know is answered with a 500."""


class KubeError(Exception):
    """The API server did not do what was asked; the text is fit for a condition's message."""


class Gone(KubeError):
    """The object, its namespace or its kind does not exist."""


class Conflict(KubeError):
    """Somebody else got there first: a precondition or an expected version no longer holds."""


class Denied(KubeError):
    """Refused for good: asking again unchanged gives the same answer."""

    def __init__(self, message: str, *, namespace_terminating: bool = False) -> None:
        super().__init__(message)
        self.namespace_terminating = namespace_terminating


class Retry(KubeError):
    """The API server cannot answer now; `after` is the wait it asked for, in seconds."""

    def __init__(self, message: str, *, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


def error_of(
    what: str, status: int, answer: dict[str, Any] | None, retry_after: str | None
) -> KubeError:
    """The error for an answer that is not a success or not JSON."""
    answer = answer or {}
    message = answer.get("message") or f"{what}: the API server answered {status}"
    if status in {404, 410}:
        return Gone(message)
    if status == 409:
        return Conflict(message)
    passing = status in {401, 408, 429} or status >= 500 or status < 300
    if passing and UNKNOWN_FIELD not in message:
        return Retry(message, after=_seconds(retry_after))
    causes = (answer.get("details") or {}).get("causes") or []
    terminating = any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
    return Denied(message, namespace_terminating=terminating)


def _seconds(retry_after: str | None) -> float:
    """Retry-After in its number form; Kubernetes never sends the date form."""
    try:
        return max(0.0, float(retry_after or 0))
    except ValueError:
        return 0.0

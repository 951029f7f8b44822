# SPDX-License-Identifier: Apache-2.0
"""Why a request is turned away without ever having held KV."""

from enum import StrEnum


class Refusal(StrEnum):
    UNKNOWN_WORKLOAD = "unknown_workload"
    TOO_LARGE = "too_large"
    INVALID = "invalid"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    STOPPING = "stopping"


class Refused(Exception):
    """`str()` is a sentence for the client."""

    def __init__(self, reason: Refusal, message: str) -> None:
        super().__init__(message)
        self.reason = reason

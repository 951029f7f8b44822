# SPDX-License-Identifier: Apache-2.0
"""The waiting requests of one workload, first come first served.

The order in which a workload's requests reach admission is decided here and nowhere else; a
fairer one (by tenant, by expected length) replaces `head`. It never looks at budgets.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import takewhile

from headway_server.scheduler.request import Request


class WaitingQueue:
    def __init__(self) -> None:
        self._requests: OrderedDict[str, Request] = OrderedDict()

    def __len__(self) -> int:
        return len(self._requests)

    def push(self, request: Request) -> None:
        self._requests[request.request_id] = request

    def head(self, eligible: Callable[[Request], bool]) -> Request | None:
        """The next to be admitted. If that one does not fit, nobody overtakes it."""
        return next(filter(eligible, self._requests.values()), None)

    def remove(self, request_id: str) -> None:
        del self._requests[request_id]

    def larger_than(self, tokens: int) -> list[Request]:
        return [request for request in self._requests.values() if request.reserve > tokens]

    def arrived_by(self, moment: float) -> list[Request]:
        return list(takewhile(lambda request: request.arrival <= moment, self._requests.values()))

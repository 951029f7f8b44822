# SPDX-License-Identifier: Apache-2.0
"""When waiting requests may join a batch that is being served: TGI's two knobs, per workload.

Letting a request in costs the running ones a slower step. `waiting_served_ratio_percent` asks for
enough waiting requests to make that worth it; `max_waiting_tokens` bounds how long they hold out.
"""

from headway_server.scheduler.settings import Knobs


class AdmissionGate:
    """Open if waiting >= floor(running * ratio), or if `max_waiting_tokens` steps were served since
    the last admission, counting the admitting step, whose prefill brings the first token.

    Two differences from TGI, on purpose. TGI ignores both knobs when it prefills in chunks; here
    they hold. TGI also takes back a batch in which fewer than floor(running * ratio) requests fit;
    here an open gate admits what fits, so that one long request cannot veto the others.
    """

    def __init__(self) -> None:
        self._steps_since_admission = 0

    def is_open(self, knobs: Knobs, waiting: int, running: int) -> bool:
        if self._steps_since_admission >= knobs.max_waiting_tokens:
            return True
        return waiting >= running * knobs.waiting_served_ratio_percent // 100

    def admitted(self) -> None:
        self._steps_since_admission = 0

    def served(self) -> None:
        """A step ended that brought at least one of the workload's requests a token."""
        self._steps_since_admission += 1

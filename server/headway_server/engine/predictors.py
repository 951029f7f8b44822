# SPDX-License-Identifier: Apache-2.0
"""Every predictor of output lengths that a server has, one of them in force."""

import numpy as np
from numpy.typing import NDArray

from headway_server.engine.hidden_state import HiddenState
from headway_server.scheduler import Formation, Request
from headway_server.scheduler.history import History
from headway_server.scheduler.length import MaxTokens
from headway_server.scheduler.length_choice import LengthChoice


class Predictors(LengthChoice):
    """Hidden states are looked at only while the predictor that needs them is in force: unlike the
    others it costs time in each step."""

    def __init__(self, formation: Formation) -> None:
        history = History()
        self._hidden_state = HiddenState(history)
        super().__init__(
            {"MaxTokens": MaxTokens(), "History": history, "HiddenState": self._hidden_state},
            formation.length_predictor,
            formation.bins,
        )

    def observe(self, request: Request, hidden: NDArray[np.float32]) -> None:
        if self.chosen == "HiddenState":
            self._hidden_state.observe(request, hidden)

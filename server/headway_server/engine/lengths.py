# SPDX-License-Identifier: Apache-2.0
"""What the engine asks of the prediction of output lengths, beyond what the scheduler does."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headway_server.scheduler import LengthPredictor, Request


class Lengths(LengthPredictor, Protocol):
    """All predictors there are, one of them in force."""

    def choose(self, chosen: str, bins: int) -> None:
        """As `Formation.length_predictor` and `Formation.bins` say; called at each new setting."""
        ...

    def observe(self, request: Request, hidden: NDArray[np.float32]) -> None:
        """`hidden` [hidden size]: the model's last layer after the last prompt token."""
        ...

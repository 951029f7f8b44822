# SPDX-License-Identifier: Apache-2.0
"""A model of bytes whose logits are random: all of sampling, without weights."""

from collections.abc import Sequence

import torch

from headway_server.filler_codec import END_TOKEN_ID, FILLER_VOCABULARY, filler_codec
from headway_server.runner.protocol import Finished, Row, Step
from headway_server.runner.sampling import Sampler
from headway_server.service import LoadedModel
from headway_server.settings import Envelope


class RandomModel:
    """The logits depend on the position alone; of itself it rarely ends an answer."""

    runs_ahead = False
    kv_capacity_tokens = 4096
    block_size = 16
    max_step_tokens = 512
    vocab_size = FILLER_VOCABULARY

    def __init__(self) -> None:
        self._sampler = Sampler(self.vocab_size)

    def launch(self, batch: Sequence[Row]) -> Step:
        drawing = self._sampler.begin(batch)
        positions = [row.start + len(row.token_ids) for row in batch if row.samples]
        return Finished(drawing.draw(torch.stack([line_at(each) for each in positions])))


def line_at(position: int) -> torch.Tensor:
    line = torch.randn(FILLER_VOCABULARY, generator=torch.Generator().manual_seed(position))
    line[END_TOKEN_ID] = -30
    return line


def random_model() -> LoadedModel:
    envelope = Envelope(RandomModel.kv_capacity_tokens, 400, 512, RandomModel.max_step_tokens)
    return LoadedModel(RandomModel(), filler_codec(), envelope)

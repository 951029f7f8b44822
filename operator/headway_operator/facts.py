# SPDX-License-Identifier: Apache-2.0
"""What is known about a pool once its children have been seen to: the input of its status."""

from dataclasses import dataclass

from headway_operator.acknowledgement import Acknowledgement
from headway_operator.decide import Decision
from headway_operator.diagnosis import Diagnosis
from headway_operator.pool import Pool
from headway_operator.replicas import Replicas
from headway_operator.resources import Resource


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A child that could not be brought to what it should be; `message` says why."""

    resource: Resource
    message: str


@dataclass(frozen=True, slots=True)
class Facts:
    """`rolls`: the pod template has just been changed. `acknowledgement` is None without HOT
    values to acknowledge. `capacity` is the KV tokens of the smallest replica, where known."""

    pool: Pool
    decision: Decision
    replicas: Replicas
    acknowledgement: Acknowledgement | None
    capacity: int | None = None
    diagnosis: Diagnosis | None = None
    obstacle: Obstacle | None = None
    rolls: bool = False

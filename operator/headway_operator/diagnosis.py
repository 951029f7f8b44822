# SPDX-License-Identifier: Apache-2.0
"""Why a replica does not serve, in the words of whoever knows best: server, kubelet, scheduler.

A message must stay the same while the cause does. So there is no restart count in it, no name
that is drawn anew at each try, and a container that is between two crashes still counts as
crashing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from headway_api.conditions import Reason
from headway_operator.resources import Manifest, Manifests

LINE_LIMIT = 512
PULL_ERRORS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
CONFIG_ERRORS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
_PULL_PREFIX = re.compile(r"^Back-off pulling image .*?: (ErrImagePull: )?")
_POD_NAME = re.compile(r'pods "[^"]+" ')
_MODEL_FAILURE = re.compile(r"^headway-server: .*\bmodel\b")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    reason: Reason
    message: str


def diagnose(pods: Manifests, create_failure: str | None) -> Diagnosis | None:
    """The first of the worst problems, pods taken by name; None when all is well or just starting.

    `create_failure` is what the Deployment controller says when it may not create pods at all.
    """
    stuck = [pod for pod in sorted(pods, key=_name) if not pod["metadata"].get("deletionTimestamp")]
    for examine in (_crash, _failed_pull, _bad_config, _unschedulable):
        for pod in stuck:
            if diagnosis := examine(pod):
                return diagnosis
    if create_failure:
        message = f"pods cannot be created: {_POD_NAME.sub('pods ', create_failure)}"
        return Diagnosis(Reason.UNSCHEDULABLE, message)
    return None


def _crash(pod: Manifest) -> Diagnosis | None:
    for status in _containers(pod):
        if status.get("ready"):
            continue
        waiting = status.get("state", {}).get("waiting") or {}
        ended = [status.get(key, {}).get("terminated") or {} for key in ("state", "lastState")]
        exit_state = next((state for state in ended if state), None)
        if exit_state is None:
            continue
        code = exit_state.get("exitCode", 0)
        if code == 0 and waiting.get("reason") != "CrashLoopBackOff":
            continue
        line = _last_line(exit_state.get("message"))
        killed = f" ({exit_state['reason']})" if exit_state.get("reason") == "OOMKilled" else ""
        said = f": {line}" if line else " and wrote nothing"
        failed_load = code == 1 and _MODEL_FAILURE.search(line)
        return Diagnosis(
            Reason.MODEL_LOAD_FAILED if failed_load else Reason.CRASH_LOOPING,
            f"pod {_name(pod)} exited with code {code}{killed}{said}",
        )
    return None


def _failed_pull(pod: Manifest) -> Diagnosis | None:
    for status in _containers(pod):
        waiting = status.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in PULL_ERRORS:
            words = _PULL_PREFIX.sub("", waiting.get("message") or waiting["reason"])
            return Diagnosis(
                Reason.IMAGE_PULL_FAILED,
                f"pod {_name(pod)} cannot pull {status.get('image')}: {words}",
            )
    return None


def _bad_config(pod: Manifest) -> Diagnosis | None:
    for status in _containers(pod):
        waiting = status.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in CONFIG_ERRORS:
            words = waiting.get("message") or waiting["reason"]
            return Diagnosis(Reason.PENDING, f"pod {_name(pod)} cannot start: {words}")
    return None


def _unschedulable(pod: Manifest) -> Diagnosis | None:
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            words = condition.get("message") or "no reason given"
            return Diagnosis(Reason.UNSCHEDULABLE, f"pod {_name(pod)}: {words}")
    return None


def _containers(pod: Manifest) -> Iterable[Manifest]:
    return (pod.get("status") or {}).get("containerStatuses") or []


def _last_line(message: str | None) -> str:
    lines = [line.strip() for line in (message or "").splitlines() if line.strip()]
    return lines[-1][:LINE_LIMIT] if lines else ""


def _name(pod: Manifest) -> str:
    return str(pod["metadata"]["name"])

# SPDX-License-Identifier: Apache-2.0
"""What a figure depends on besides the code: processor, versions, and how busy the machine was."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("headway", "torch", "transformers", "tokenizers", "numpy", "llama-cpp-python")
CPU_INFO = Path("/proc/cpuinfo")


def describe_machine(device: str) -> dict[str, Any]:
    import torch

    features = torch.cpu.get_capabilities()
    return {
        "architecture": platform.machine(),
        "cpu": cpu_model(CPU_INFO),
        "cpuFeatures": sorted(name for name, has in features.items() if has is True),
        "cpus": len(os.sched_getaffinity(0)),
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := installed(name))},
    }


def load_average() -> list[float]:
    """Processes that wanted to run, over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def cpu_model(file: Path) -> str:
    if file.is_file():
        for line in file.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

# SPDX-License-Identifier: Apache-2.0
"""Puts the native library into the wheel where a C++ compiler is at hand.

It never fails a build: a wheel without the library finds or builds it when the server starts.
"""

import importlib.util
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("server/headway_server/native")


class NativeLibraryHook(BuildHookInterface[Any]):
    """Hatchling's `custom` hook for wheels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._scratch = tempfile.TemporaryDirectory(prefix="headway-native-")
        build = load_build(Path(self.root) / NATIVE / "build.py")
        try:
            library = build.build(Path(self._scratch.name))
        except (build.BuildFailed, OSError) as error:
            self.app.display_warning(f"the wheel is made without the native library: {error}")
            return
        build_data["force_include"][str(library)] = f"headway_server/native/built/{library.name}"
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._scratch.cleanup()


def load_build(file: Path) -> ModuleType:
    """The module by its path: the project is not installed yet."""
    spec = importlib.util.spec_from_file_location("headway_native_build", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

# SPDX-License-Identifier: Apache-2.0
"""Finds the native library, or builds it where a compiler is, and declares its functions.

Images and wheels carry it beside the package. Elsewhere it is built into the user's cache, so that
the package's own folder, of which images are made, never changes.
"""

import ctypes
import os
from ctypes import POINTER, c_char_p, c_float, c_int, c_void_p
from pathlib import Path

from headway_server.native import abi
from headway_server.native.build import BuildFailed, build, file_name

BUILT = Path(__file__).parent / "built"


class NativeUnavailable(Exception):
    """Why there is no native path here, as the rest of a sentence."""


def load_library() -> ctypes.CDLL:
    """Raises NativeUnavailable."""
    try:
        library = ctypes.CDLL(str(find() or build_here()))
    except OSError as error:
        raise NativeUnavailable(f"its library cannot be loaded ({error})") from error
    declare(library)
    return library


def find() -> Path | None:
    files = (folder / file_name() for folder in (BUILT, cache_folder()))
    return next((file for file in files if file.is_file()), None)


def build_here() -> Path:
    try:
        return build(cache_folder())
    except BuildFailed as error:
        raise NativeUnavailable(str(error)) from error
    except OSError as error:
        raise NativeUnavailable(f"its library cannot be written ({error})") from error


def cache_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "headway" / "native"


def declare(library: ctypes.CDLL) -> None:
    floats, engine = c_void_p, c_void_p
    signatures = {
        "headway_open": (c_void_p, (c_int, c_char_p)),
        "headway_close": (None, (engine,)),
        "headway_name": (c_char_p, (engine,)),
        "headway_forward": (c_int, (engine, POINTER(abi.Model), POINTER(abi.Batch))),
        "headway_multiply": (c_int, (engine, POINTER(abi.Matrix), floats, c_int, floats)),
        "headway_attend": (
            c_int,
            (engine, POINTER(abi.Model), c_int, POINTER(abi.Batch), floats, floats),
        ),
        "headway_normalise": (None, (engine, floats, floats, c_int, c_float, floats)),
        "headway_pack": (None, (engine, POINTER(abi.Source), c_int, c_void_p, c_int, c_int)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments

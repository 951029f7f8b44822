# SPDX-License-Identifier: Apache-2.0
"""Tries grammars out in a process of their own, which can be ended.

Some small schemas take their compiler minutes, and a thread that compiles cannot be stopped. So
each grammar is first compiled in a child process, within bounds of time and memory, and only one
that passed is compiled in the server.
"""

import json
import resource
import select
import subprocess
import sys
import weakref
from threading import Lock
from typing import Any

from llguidance import LLMatcher, LLParserLimits

CHECK_SECONDS = 3.0
START_SECONDS = 60.0
MEMORY_BYTES = 2**30


def parser_limits() -> LLParserLimits:
    """Bound what one mask may cost (fuel is used up at roughly 14,000 a millisecond)."""
    return LLParserLimits(
        initial_lexer_fuel=500_000,
        step_lexer_fuel=100_000,
        step_max_items=50_000,
        max_lexer_states=50_000,
        max_grammar_size=200_000,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


class GrammarCheck:
    """The child starts with the first grammar, and again after one that had to be broken off."""

    def __init__(self, seconds: float = CHECK_SECONDS) -> None:
        self._seconds = seconds
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def fault(self, grammar: str) -> str | None:
        """What is wrong with the grammar, in a sentence."""
        with self._lock:
            child = self._running()
            try:
                _send(child, grammar)
                answer = _receive(child, self._seconds)
            except (BrokenPipeError, EOFError):
                _end(child)
                return "it needs more memory or time to compile than is allowed"
            except TimeoutError:
                _end(child)
                return f"it takes longer to compile than the {self._seconds:g} s allowed"
        fault: str | None = answer
        return fault

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._child is None or self._child.poll() is not None:
            command = [sys.executable, "-m", "headway_server.runner.grammar_check"]
            child = subprocess.Popen(  # noqa: S603  our own module
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            weakref.finalize(self, _end, child)
            _receive(child, START_SECONDS)
            self._child = child
        return self._child


def _send(child: "subprocess.Popen[bytes]", grammar: str) -> None:
    if child.stdin is not None:
        child.stdin.write(json.dumps(grammar).encode() + b"\n")


def _receive(child: "subprocess.Popen[bytes]", seconds: float) -> Any:
    if child.stdout is None or not select.select([child.stdout], [], [], seconds)[0]:
        raise TimeoutError
    line = child.stdout.readline()
    if not line:
        raise EOFError
    return json.loads(line)


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()


def serve() -> None:
    """The child: a grammar a line in, null or what is wrong with it a line out."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    limits = parser_limits()
    print("null", flush=True)
    for line in sys.stdin:
        _allow_more_processor_time()
        fault = LLMatcher.validate_grammar(json.loads(line), limits=limits)
        failed = bool(fault) and not fault.startswith("WARNING")
        print(json.dumps(fault if failed else None), flush=True)


def _allow_more_processor_time() -> None:
    """So that a child whose parent has gone comes to an end."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(used.ru_utime + used.ru_stime) + 60
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


if __name__ == "__main__":
    serve()

# SPDX-License-Identifier: Apache-2.0
"""Whether a request may be queued, and for how many tokens, decided before it costs anything.

Pure. Every refusal says which limit, the value and the bound.
"""

from headway_server.problem import Problem
from headway_server.settings import Envelope, HotSettings, WorkloadTerms


def workload_of(header: str | None, settings: HotSettings) -> str:
    """The workload a request names, or the first one."""
    if header is None:
        return settings.default_workload
    if header not in settings.terms:
        raise Problem(
            400,
            f"There is no workload {header[:64]!r} on this server. "
            f"Set the header x-workload to one of: {', '.join(settings.terms)}.",
            code="unknown_workload",
            param="x-workload",
        )
    return header


def check_room(in_flight: int, bound: int, retry_after: int) -> None:
    if in_flight >= bound:
        raise Problem(
            429,
            f"This replica has {in_flight} requests running or waiting; its limit, "
            f"engine.maxConcurrentRequests, is {bound}. Try again in {retry_after} s.",
            code="too_many_requests",
            retry_after=retry_after,
        )


def output_budget(
    prompt_tokens: int,
    asked: int | None,
    default: int | None,
    terms: WorkloadTerms,
    envelope: Envelope,
) -> int:
    """Output tokens to reserve. Without `asked`: `default`, else all that the context leaves.

    The workload's maxOutputTokens caps either; a prompt that is too long, or that together with
    `asked` exceeds the context, is a Problem.
    """
    if prompt_tokens > terms.max_input_tokens:
        raise _too_long(
            f"The prompt has {prompt_tokens} tokens; the limit, maxInputTokens, is "
            f"{terms.max_input_tokens}."
        )
    left = envelope.max_total_tokens - prompt_tokens
    if left < 1:
        raise _too_long(
            f"The prompt has {prompt_tokens} tokens, which leaves no room for an answer: the "
            f"limit of prompt and answer together, maxTotalTokens, is {envelope.max_total_tokens}."
        )
    cap = terms.max_output_tokens or envelope.max_total_tokens
    if asked is None:
        return min(default or left, left, cap)
    if min(asked, cap) > left:
        raise _too_long(
            f"The prompt has {prompt_tokens} tokens and max_tokens is {asked}, together "
            f"{prompt_tokens + asked}; the limit, maxTotalTokens, is {envelope.max_total_tokens}."
        )
    return min(asked, cap)


def retry_after_seconds(finish_times: tuple[float, ...]) -> int:
    """Whole seconds until a place should come free: the mean time between recent finishes."""
    if len(finish_times) < 2:
        return 1
    mean = (finish_times[-1] - finish_times[0]) / (len(finish_times) - 1)
    return min(60, max(1, round(mean)))


def _too_long(message: str) -> Problem:
    return Problem(400, message, code="context_length_exceeded")

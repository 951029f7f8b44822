# SPDX-License-Identifier: Apache-2.0
"""Fetches a model from the Hugging Face hub, or says in one sentence what is in the way.

Only data files are fetched: weights as safetensors, the rest as JSON or text, never code.
"""

from collections.abc import Callable
from pathlib import Path

import httpx2
from huggingface_hub import get_token, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from headway_server.load_error import ModelLoadError

PATTERNS = ["*.safetensors", "*.json", "*.jinja", "merges.txt", "vocab.txt"]


def download(model: str, revision: str, progress: Callable[[str], None]) -> Path:
    """What is in the local cache already is not fetched again."""
    progress(f"fetching {model} at {revision} from the hub")
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=PATTERNS))
    except (HFValidationError, HfHubHTTPError, OSError, httpx2.HTTPError) as error:
        raise ModelLoadError(explain(model, revision, error)) from error


def explain(model: str, revision: str, error: Exception) -> str:
    match error:
        case GatedRepoError():
            return f"model {model} is gated: accept its terms on the hub, and {token_advice()}"
        case RepositoryNotFoundError():
            private = f"if it is private, {token_advice()}"
            return f"model {model} was not found on the hub: check the name; {private}"
        case RevisionNotFoundError():
            return f"model {model} has no revision {revision} on the hub: check --revision"
        case HFValidationError():
            return f"{model!r} is neither a folder nor a model name like organisation/name"
        case LocalEntryNotFoundError() | OfflineModeIsEnabled() | httpx2.TransportError():
            return (
                f"model {model} is not in the local cache and the hub cannot be reached: "
                "allow egress to it, or mount the model as a folder"
            )
        case HfHubHTTPError():
            return f"the hub refused to serve model {model}: {first_line(error)}"
    return f"model {model} could not be written to the local cache: {first_line(error)}"


def token_advice() -> str:
    return (
        "check that HF_TOKEN may read it"
        if get_token()
        else "set HF_TOKEN to a token that may read it"
    )


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]

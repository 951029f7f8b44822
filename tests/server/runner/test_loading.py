# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a model is said in one sentence before the server is ready."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Request, Response
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

from headway_server import model_hub
from headway_server.convert import convert
from headway_server.load_error import ModelLoadError
from headway_server.model_folder import locate, read_folder


def quiet(line: str) -> None:
    pass


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "model"))


def edit_config(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_text()) | values
    file.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def test_a_good_folder_tells_its_limits(folder: Path) -> None:
    found = locate(str(folder), "main", quiet)
    assert (found.context_length, found.vocab_size) == (256, 97)
    assert found.eos_token_ids == {1}


def test_the_generation_config_has_the_last_word_on_the_end_of_an_answer(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert read_folder(folder).eos_token_ids == {5, 6}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "config.json").unlink(), "has no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json is not valid JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "must hold a JSON object"),
        (lambda f: (f / "model.safetensors").unlink(), "has no weights"),
        (
            lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
            "only as pytorch_model.bin, a format that can run code",
        ),
        (
            lambda f: (f / "model.safetensors.index.json").write_text(
                '{"weight_map": {"a": "model-1.safetensors", "b": "model.safetensors"}}'
            ),
            "lacks 1 of 2 weight files, model-1.safetensors",
        ),
        (lambda f: edit_config(f, vocab_size=None), "does not say vocab_size"),
    ],
)
def test_an_incomplete_folder(damage: Any, words: str, folder: Path) -> None:
    damage(folder)
    with pytest.raises(ModelLoadError, match=re.escape(words)) as error:
        locate(str(folder), "main", quiet)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["/models/none", "./none", "none", "a/b/c"])
def test_a_folder_that_does_not_exist(name: str) -> None:
    with pytest.raises(ModelLoadError, match=f"model folder {name} does not exist"):
        locate(name, "main", quiet)


def answered(status: int) -> Any:
    return Response(status, request=Request("GET", "https://hub.invalid"))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            RepositoryNotFoundError("x", response=answered(401)),
            "was not found.*private, set HF_TOKEN",
        ),
        (GatedRepoError("x", response=answered(403)), "is gated: accept.*HF_TOKEN"),
        (LocalEntryNotFoundError("x"), "hub cannot be reached: allow egress"),
        (OSError("disk full"), "could not be written.*disk full"),
    ],
)
def test_a_hub_that_does_not_give_the_model(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> str:
        raise error

    monkeypatch.setattr(model_hub, "snapshot_download", fail)
    monkeypatch.setattr(model_hub, "get_token", lambda: None)
    with pytest.raises(ModelLoadError, match=words):
        locate("some/model", "main", quiet)


def test_from_the_hub_only_data_files_are_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def give(model: str, **values: Any) -> str:
        asked.update(values)
        return str(folder)

    monkeypatch.setattr(model_hub, "snapshot_download", give)
    assert locate("some/model", "v2", quiet).path == folder
    assert asked["revision"] == "v2"
    assert not any(pattern.endswith(("py", "bin", "*")) for pattern in asked["allow_patterns"])


def test_damaged_weights(folder: Path, load: Any) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelLoadError, match="are damaged"):
        load(folder)


def test_weights_that_lack_a_tensor_are_not_made_up(folder: Path, load: Any) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ModelLoadError, match=r"lack 1 tensors, model\.layers\.1\.mlp\.up_proj\.weight"
    ):
        load(folder)


def test_an_unknown_architecture_and_code_in_the_folder_are_not_run(
    folder: Path, load: Any
) -> None:
    (folder / "own.py").write_text("raise SystemExit('code from the folder was run')")
    edit_config(
        folder,
        model_type="own",
        architectures=["OwnModel"],
        auto_map={"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"},
    )
    with pytest.raises(ModelLoadError, match=r"\(OwnModel\) is not supported") as error:
        load(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model_type", "values", "words"),
    [
        ("gemma2", {"head_dim": 8, "attn_logit_softcapping": 30.0}, "attention with softcap"),
        ("gpt_oss", {"head_dim": 8, "num_local_experts": 2}, "attention with s_aux"),
        ("mamba", {}, "is not supported"),
    ],
)
def test_attention_that_is_not_implemented_is_refused_at_load(
    model_type: str, values: dict[str, Any], words: str, make_model: Any, load: Any
) -> None:
    with pytest.raises(ModelLoadError, match=words):
        load(make_model(model_type, **values))


def test_a_quantised_checkpoint(folder: Path, load: Any) -> None:
    edit_config(folder, quantization_config={"quant_method": "fp8"})
    with pytest.raises(ModelLoadError, match="is quantised"):
        load(folder)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kv_capacity_tokens": 15}, "no room for a KV cache"),
        ({"kv_capacity_tokens": 10**12}, "lower --kv-cache-capacity-tokens"),
        ({"device": "cuda"}, "no GPU is visible"),
    ],
)
def test_what_the_machine_does_not_have(
    values: dict[str, Any], words: str, tiny: Path, load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ModelLoadError, match=words):
        load(tiny, **values)


def test_without_a_given_capacity_the_cache_gets_a_share_of_the_free_memory(
    tiny: Path, load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway_server.runner.placement.available_memory", lambda: 10 * 2**20)
    bytes_per_token = 2 * 2 * (8 + 8) * 4
    expected = 10 * 2**20 * 40 // 100 // (16 * bytes_per_token) * 16
    assert load(tiny, kv_capacity_tokens=None, native=False).kv_capacity_tokens == expected


def test_loading_tells_how_far_it_is(tiny: Path, load: Any) -> None:
    lines: list[str] = []
    load(tiny, progress=lines.append)
    assert [line.split()[0] for line in lines] == ["loading", "weights", "KV"]


def test_convert_says_what_is_wrong_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="does not exist"):
        convert(tmp_path / "none.gguf", tmp_path / "out", quiet)
    (tmp_path / "some.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelLoadError, match="exists already"):
        convert(tmp_path / "some.gguf", tmp_path, quiet)


def test_a_failed_conversion_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "some.gguf"
    source.write_bytes(b"not a GGUF file")
    with pytest.raises(ModelLoadError, match="cannot be converted"):
        convert(source, tmp_path / "out", quiet)
    assert list(tmp_path.iterdir()) == [source]

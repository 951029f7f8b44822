# SPDX-License-Identifier: Apache-2.0
"""`headway-bench engine` from its flags to its JSON, on a tiny random model."""

import json
from pathlib import Path

import pytest

from headway_bench.__main__ import main

WITHOUT_PEERS = {
    "share_of_matmul_limit_b32",
    "scheduler_ms_per_step",
    "ttft_p95_ratio_mixed",
    "ttft_ratio_prefix_hit",
    "output_tokens_per_second",
    "greedy_share_of_fp32_argmax",
    "largest_logit_gap",
}
WITH_TRANSFORMERS = {"ratio_vs_transformers_cb", "ratio_vs_static"}


def test_a_quick_run_measures_every_figure(
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    file, picture = tmp_path / "bench.json", tmp_path / "bench.svg"
    flags = ["--quick", "--threads", "1", "--json", str(file), "--plot", str(picture)]
    assert main(["engine", "--model", str(tiny_model), *flags]) == 0
    report = json.loads(file.read_text())
    for name in WITHOUT_PEERS | WITH_TRANSFORMERS:
        assert isinstance(report[name], (int, float)), name
        assert name in report["details"]
    assert report["greedy_share_of_fp32_argmax"] >= 0.99
    assert report["largest_logit_gap"] < 0.01
    assert report["settings"]["threads"] == 1
    assert report["settings"]["dtype"] in ("float32", "bfloat16")
    assert len(report["loadAverage"]["before"]) == len(report["loadAverage"]["after"]) == 3
    assert report["machine"]["versions"]["torch"]
    vs_static = report["details"]["ratio_vs_static"]
    assert len(vs_static["ours"]["repetitions"]) == len(vs_static["theirs"]["repetitions"]) == 1
    printed = capsys.readouterr()
    assert "ratio_vs_static" in printed.out
    assert "repetition 1 of 1" in printed.err
    assert picture.read_text().startswith("<?xml")


def test_only_leaves_out_the_rest(tiny_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    flags = ["--quick", "--threads", "1", "--repeats", "2", "--only", "scheduler_ms_per_step"]
    assert main(["engine", "--model", str(tiny_model), *flags, "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert list(report["details"]) == ["scheduler_ms_per_step"]
    details = report["details"]["scheduler_ms_per_step"]
    by_waiting = details["byWaiting"]
    assert details["wholeEngine"]["median"] > report["scheduler_ms_per_step"]
    assert list(by_waiting) == ["100", "1000", "10000"]
    assert all(len(series["repetitions"]) == 2 for series in by_waiting.values())


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--peer", "none", "--only", "ratio_vs_static"], "--only ratio_vs_static needs --peer"),
        (["--peer", "llama.cpp"], "--peer llama.cpp needs --gguf"),
    ],
)
def test_flags_that_do_not_go_together(
    flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["engine", "--model", "anywhere", *flags]) == 2
    assert sentence in capsys.readouterr().err


def test_a_model_that_is_not_there_gets_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["engine", "--model", str(tmp_path), "--quick", "--threads", "1"]) == 1
    assert "has no config.json" in capsys.readouterr().err

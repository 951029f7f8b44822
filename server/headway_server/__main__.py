# SPDX-License-Identifier: Apache-2.0
"""The `headway-server` command: reads the flags and starts what they ask for."""

import argparse
import dataclasses
import os
import sys
from pathlib import Path

from headway_api.names import HTTP_PORT, METRICS_PORT
from headway_server.options import ServeOptions
from headway_server.runner.simulated import StepTime

RUNNER_HELP = (
    "torch runs the model. simulated runs none: a step takes a time that is a formula of its batch "
    "(the --simulated-* flags), a prompt's tokens are its bytes, and answers are filler letters up "
    "to max_tokens. It needs no weights and is for trying out settings and for tests of scale"
)


def main() -> None:
    arguments = _parser().parse_args()
    code = arguments.run(arguments)
    # A load or a step may still be under way on a thread: nobody waits for it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _serve(arguments: argparse.Namespace) -> int:
    from prometheus_client import disable_created_metrics

    from headway_server.json_logs import configure_logging
    from headway_server.process import serve

    configure_logging()
    disable_created_metrics()  # type: ignore[no-untyped-call]
    return serve(_options(arguments))


def _convert(arguments: argparse.Namespace) -> int:
    from headway_server.convert import convert
    from headway_server.load_error import ModelLoadError

    try:
        convert(arguments.gguf_file, arguments.output_dir, lambda line: print(line, flush=True))
    except ModelLoadError as error:
        print(f"headway-server: {error}", file=sys.stderr)
        return 1
    return 0


def _options(arguments: argparse.Namespace) -> ServeOptions:
    return ServeOptions(
        model=arguments.model,
        served_name=arguments.served_name or Path(arguments.model).name,
        revision=arguments.revision,
        device=arguments.device,
        dtype=arguments.dtype,
        quantization=arguments.quantization,
        kv_cache_dtype=arguments.kv_cache_dtype,
        prefix_caching=arguments.prefix_caching == "enabled",
        simulated=_step_time(arguments) if arguments.runner == "simulated" else None,
        max_input_tokens=arguments.max_input_tokens,
        max_total_tokens=arguments.max_total_tokens,
        kv_cache_capacity_tokens=arguments.kv_cache_capacity_tokens,
        gpu_memory_utilization_percent=arguments.gpu_memory_utilization_percent,
        runtime_file=arguments.runtime_file,
        host=arguments.host,
        port=arguments.port,
        metrics_port=arguments.metrics_port,
        drain_timeout_seconds=arguments.drain_timeout_seconds,
        stall_timeout_seconds=arguments.stall_timeout_seconds,
        tgi_metrics=arguments.tgi_metrics,
    )


def _step_time(arguments: argparse.Namespace) -> StepTime:
    names = [field.name for field in dataclasses.fields(StepTime)]
    return StepTime(**{name: getattr(arguments, f"simulated_{name}") for name in names})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headway-server",
        description="A continuous-batching LLM server whose batching values change while it runs.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="serve one model over HTTP",
        description="Serves one model: OpenAI's API, /health and /ready on --port, metrics on "
        "--metrics-port. HTTP is up at once; /ready turns 200 when the model is loaded.",
    )
    _add_model_flags(serve)
    _add_envelope_flags(serve)
    _add_process_flags(serve)
    _add_simulated_flags(serve)
    serve.set_defaults(run=_serve)
    convert = commands.add_parser(
        "convert",
        help="turn a GGUF file into a model folder",
        description="Writes a safetensors folder with tokenizer, config and chat template, which "
        "`serve` loads in a second.",
    )
    convert.add_argument("gguf_file", type=Path, metavar="GGUF_FILE")
    convert.add_argument("output_dir", type=Path, metavar="OUTPUT_DIR")
    convert.set_defaults(run=_convert)
    return parser


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    flags = parser.add_argument_group("model")
    flags.add_argument(
        "--model",
        required=True,
        metavar="PATH_OR_HUB_ID",
        help="folder with safetensors, or hub id",
    )
    flags.add_argument("--served-name", metavar="NAME", help="name that clients send (the model's)")
    flags.add_argument("--revision", default="main", help="revision on the hub (%(default)s)")
    flags.add_argument(
        "--runner", choices=("torch", "simulated"), default="torch", help=RUNNER_HELP
    )
    flags.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    flags.add_argument(
        "--dtype",
        choices=("auto", "float16", "bfloat16", "float32"),
        default="auto",
        help="of the weights (%(default)s)",
    )
    flags.add_argument(
        "--quantization",
        choices=("none", "int8", "fp8"),
        default="none",
        help="of the weights, as they are loaded (%(default)s)",
    )


def _add_envelope_flags(parser: argparse.ArgumentParser) -> None:
    flags = parser.add_argument_group("envelope, fixed while the process lives")
    flags.add_argument(
        "--max-input-tokens", type=_count, metavar="N", help="longest prompt (one below the total)"
    )
    flags.add_argument(
        "--max-total-tokens", type=_count, metavar="N", help="prompt and answer (model's context)"
    )
    flags.add_argument(
        "--kv-cache-capacity-tokens", type=_count, metavar="N", help="KV cache (what memory allows)"
    )
    flags.add_argument(
        "--kv-cache-dtype",
        choices=("auto", "int8", "fp8"),
        default="auto",
        help="of keys and values; auto is the model's (%(default)s)",
    )
    flags.add_argument(
        "--prefix-caching",
        choices=("enabled", "disabled"),
        default="enabled",
        help="reuse of the KV blocks of equal prefixes, within a tenant (%(default)s)",
    )
    flags.add_argument(
        "--gpu-memory-utilization-percent",
        type=_count,
        default=90,
        metavar="PERCENT",
        help="share of the GPU's memory to use (%(default)s)",
    )
    flags.add_argument(
        "--runtime-file",
        type=Path,
        metavar="FILE",
        help="the HOT values; watched, and taken up between two steps (one workload, `default`)",
    )


def _add_process_flags(parser: argparse.ArgumentParser) -> None:
    flags = parser.add_argument_group("process")
    flags.add_argument("--host", default="0.0.0.0", help="address to listen on (%(default)s)")  # noqa: S104
    flags.add_argument("--port", type=int, default=HTTP_PORT, help="HTTP (%(default)s)")
    flags.add_argument(
        "--metrics-port", type=int, default=METRICS_PORT, help="metrics (%(default)s)"
    )
    flags.add_argument(
        "--drain-timeout-seconds",
        type=float,
        default=300.0,
        metavar="S",
        help="time that open answers get after SIGTERM (%(default)s)",
    )
    flags.add_argument(
        "--stall-timeout-seconds",
        type=float,
        default=120.0,
        metavar="S",
        help="/health turns 503 when no step ends for so long though there is work (%(default)s)",
    )
    flags.add_argument(
        "--tgi-metrics",
        action="store_true",
        help="metrics under TGI's names too, for boards and alerts made for TGI",
    )


def _add_simulated_flags(parser: argparse.ArgumentParser) -> None:
    flags = parser.add_argument_group(
        "simulated runner, milliseconds",
        "decode: base + per-row*rows + per-kv-token*KV tokens; "
        "prefill: base + per-prompt-token*x + per-prompt-token-squared*(2*cached*x + x*x)",
    )
    for field in dataclasses.fields(StepTime):
        flags.add_argument(
            f"--simulated-{field.name.replace('_', '-')}",
            type=float,
            default=field.default,
            metavar="MS",
            help="%(default)s",
        )


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


if __name__ == "__main__":
    main()

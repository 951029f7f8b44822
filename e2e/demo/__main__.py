# SPDX-License-Identifier: Apache-2.0
"""`make demo`: from a bare machine to a pool that serves, is changed live, and tunes itself.

Every stage says what it does and how long it took; the end says how to go on and how to undo it.
"""

import argparse
import sys
from pathlib import Path

from demo import chat, pool, release, tuning
from demo.kubectl import CommandError, NotInTime, Tools
from demo.stages import Stages, ToldOnce, say
from headway_api.names import HTTP_PORT

EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTION = "What is the capital of France? Answer in one sentence."
NEW_BUDGET = 3072
READY_SECONDS = 600


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        if options.command == "down":
            release.remove(keep_cluster=options.keep_cluster)
        else:
            run_demo()
    except (CommandError, NotInTime, release.SetupError) as fault:
        print(f"demo: {fault}", file=sys.stderr)
        return 1
    return 0


def run_demo() -> None:
    stages = Stages()
    with stages.stage("Cluster: a real Kubernetes on this machine"):
        release.cluster_up()
    with stages.stage("Images: control plane, server, Prometheus, model"):
        release.build_and_load_images()
    with stages.stage("helm install headway"):
        tools = release.install()
    with stages.stage("kubectl apply -f examples/chat.yaml, until Ready"):
        pool.apply(tools, EXAMPLES / "chat.yaml")
        pool.await_ready(tools, "chat", READY_SECONDS, _tell)
    with stages.stage("A streamed answer through the OpenAI client"):
        _ask(tools)
    say(tools.kubectl("get", "hpool", "-o", "wide"))
    with stages.stage("kubectl patch maxBatchTotalTokens, without a restart"):
        _change_live(tools)
    with stages.stage("Load on a workload with a wrong budget, until the tuner mends it"):
        _tune(tools)
    say(f"\nSeconds of each stage:\n{stages.summary()}")
    say(
        f"\nGo on with:  export KUBECONFIG={tools.kubeconfig} PATH={tools.binaries}:$PATH"
        "\n             kubectl get hpool chat -o yaml"
        "\nUndo it all: make demo-down"
    )


def _ask(tools: Tools) -> None:
    say(f"    {QUESTION}\n    ", end="")
    with tools.port_forward("service/chat", HTTP_PORT) as url:
        for text in chat.stream_answer(url, "smollm2", QUESTION):
            say(text, end="")
    say("")


def _change_live(tools: Tools) -> None:
    before = pool.pods(tools, "chat")
    seconds = pool.seconds_until_engine_has(
        tools, "chat", "chat", NEW_BUDGET, lambda: pool.patch_budget(tools, "chat", NEW_BUDGET)
    )
    same = "the same pod" if pool.pods(tools, "chat") == before else "ANOTHER POD"
    say(f"    the engine runs with {NEW_BUDGET} tokens {seconds:.2f} s after the patch, in {same}")


def _tune(tools: Tools) -> None:
    pool.apply(tools, EXAMPLES / "chat-tuned.yaml")
    pool.await_ready(tools, "chat", READY_SECONDS, _tell)
    report = tuning.watch_the_tuner(tools, "chat", "assistant", ToldOnce(_tell))
    for change in report.changes:
        say(f"    {change['time']} {change['action']} {change['reason']}: {change['message']}")
    for phase, seen in (("before", report.before), ("after", report.after)):
        share = "no requests" if seen.share is None else f"{seen.share:.0%} met the objective"
        say(f"    {phase}: {seen.requests} requests, {share}, {_ttft(seen)}")


def _ttft(seen: tuning.Attainment) -> str:
    return f"TTFT p95 {seen.ttft_p95_milliseconds} ms"


def _tell(words: str) -> None:
    say(f"    {words}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="run the demo")
    down = commands.add_parser("down", help="undo it: release, pools, cluster")
    down.add_argument("--keep-cluster", action="store_true", help="only remove what runs on it")
    return parser


if __name__ == "__main__":
    sys.exit(main())

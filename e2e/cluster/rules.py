# SPDX-License-Identifier: Apache-2.0
"""Packet filter rules that a cluster leaves behind, and how to take them out again.

Chains, sets and tables are known by the names that kubelet, kube-proxy, kube-router and the CNI
plugins give them; what others put into the same tables stays.
"""

import json
import re
import subprocess

CHAIN_PREFIXES = ("KUBE-", "CNI-")
_SET_STARTS = ("KUBE-", "TMP-", "kube-router-")
SET_PREFIXES = (*_SET_STARTS, *(f"inet6:{start}" for start in _SET_STARTS))
PROXY_TABLE = "kube-proxy"
TABLES = ("filter", "nat", "mangle", "raw")


def remove_rules(tables_before: list[str]) -> None:
    """Takes out all chains, sets and tables of a cluster, and the tables they were made for."""
    for family in ("iptables", "ip6tables"):
        for table in TABLES:
            script = removal_script(table, _output(f"{family}-save", "-t", table))
            if script:
                _run(f"{family}-restore", "--noflush", stdin=script)
    for name in cluster_sets(_output("ipset", "list", "-name")):
        _run("ipset", "destroy", name)
    for table in set(tables()) - set(tables_before):
        if table.split()[1] == PROXY_TABLE or not _has_rules(table):
            _run("nft", "delete", "table", *table.split())


def cluster_rules() -> list[str]:
    """One line for each chain, set or table of a cluster that is there now."""
    found = [table for table in tables() if table.split()[1] == PROXY_TABLE]
    found += cluster_sets(_output("ipset", "list", "-name"))
    for family in ("iptables", "ip6tables"):
        for table in TABLES:
            saved = _output(f"{family}-save", "-t", table)
            found += [f"{family} {table} {chain}" for chain in cluster_chains(saved)]
    return found


def removal_script(table: str, saved: str) -> str:
    """Input for `iptables-restore --noflush` that undoes the cluster's part of `saved`."""
    chains = cluster_chains(saved)
    if not chains:
        return ""
    rules = [line for line in saved.splitlines() if line.startswith("-A ")]
    jumps = [rule for rule in rules if not _in_chain(rule, chains) and _jumps_to(rule, chains)]
    script = [f"*{table}"]
    script += [f"-D {rule.removeprefix('-A ')}" for rule in jumps]
    script += [f"-F {chain}" for chain in chains]
    script += [f"-X {chain}" for chain in chains]
    return "\n".join([*script, "COMMIT", ""])


def cluster_chains(saved: str) -> list[str]:
    names = re.findall(r"^:(\S+) ", saved, re.MULTILINE)
    return [name for name in names if name.startswith(CHAIN_PREFIXES)]


def cluster_sets(listing: str) -> list[str]:
    return [name for name in listing.split() if name.startswith(SET_PREFIXES)]


def tables() -> list[str]:
    """All nftables tables, as `FAMILY NAME`."""
    return re.findall(r"^table (\S+ \S+)$", _output("nft", "list", "tables"), re.MULTILINE)


def _in_chain(rule: str, chains: list[str]) -> bool:
    return rule.split()[1] in chains


def _jumps_to(rule: str, chains: list[str]) -> bool:
    target = re.search(r" (?:-j|-g|--jump|--goto) (\S+)", rule)
    return target is not None and target.group(1) in chains


def _has_rules(table: str) -> bool:
    listed = json.loads(_output("nft", "--json", "list", "table", *table.split()))
    return any("rule" in entry for entry in listed["nftables"])


def _output(*command: str) -> str:
    """Empty where the program or the kernel's table is missing: then nothing is left in it."""
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout
    except FileNotFoundError:
        return ""


def _run(*command: str, stdin: str = "") -> None:
    subprocess.run(command, input=stdin, text=True, capture_output=True, check=True)

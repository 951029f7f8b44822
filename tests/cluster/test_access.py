# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import access, dns, packages, state
from cluster.failure import ClusterError


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cluster of our own that does not run."""
    monkeypatch.setenv("HEADWAY_CLUSTER_DIR", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def test_without_a_cluster_the_command_that_starts_one_is_named(own: Path) -> None:
    with pytest.raises(ClusterError, match="python -m cluster up"):
        access.kubeconfig()


def test_our_own_cluster_is_used_where_kubeconfig_is_unset(own: Path) -> None:
    (own / "kubeconfig").touch()
    assert access.kubeconfig() == own / "kubeconfig"


def test_kubeconfig_of_a_user_comes_first(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own / "kubeconfig").touch()
    theirs = own / "theirs"
    theirs.touch()
    monkeypatch.setenv("KUBECONFIG", str(theirs))
    assert access.kubeconfig() == theirs
    assert access.foreign_kubeconfig(state.state()) == theirs


def test_kubeconfig_that_names_our_own_is_not_foreign(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(own / "kubeconfig"))
    assert access.foreign_kubeconfig(state.state()) is None


def test_kubeconfig_that_is_no_file_is_refused(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(own / "nowhere"))
    with pytest.raises(ClusterError, match="nowhere, which is not a file"):
        access.kubeconfig()


def test_load_image_explains_that_a_users_cluster_pulls(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = own / "theirs"
    theirs.touch()
    monkeypatch.setenv("KUBECONFIG", str(theirs))
    monkeypatch.setenv("PYTHONPATH", str(Path(access.__file__).parents[1]))
    done = subprocess.run(
        [sys.executable, "-m", "cluster", "load-image", "x.tar"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "pulls its own images" in done.stderr


def test_a_folder_too_long_for_sockets_is_refused() -> None:
    with pytest.raises(ClusterError, match="at most 34 characters"):
        state.State(Path(f"/tmp/{'x' * 30}")).require_room_for_sockets()


def test_name_servers_that_pods_cannot_reach_are_left_out() -> None:
    text = "search lan\nnameserver 127.0.0.53\nnameserver 10.0.0.1\n nameserver fd00::1\n# no\n"
    assert dns.name_servers(text) == ["10.0.0.1", "fd00::1"]


def test_only_installed_packages_count() -> None:
    listing = "installed runc\nconfig-files ipset\nnot-installed nftables\n"
    assert packages.parse_installed(listing) == {"runc"}


def test_someone_else_than_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="run this as root"):
        packages.require_root()


def test_services_do_not_start_and_the_machines_own_policy_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(packages, "POLICY_FILE", policy)
    with packages.no_services_start():
        assert subprocess.run([policy], check=False).returncode == 101
    assert not policy.exists()
    policy.write_text("the machine's own")
    with packages.no_services_start():
        pass
    assert policy.read_text() == "the machine's own"


def test_a_machine_without_apt_is_told_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ClusterError, match="Debian or Ubuntu"):
        packages.install_missing(lambda line: None)

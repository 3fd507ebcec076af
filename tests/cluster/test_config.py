"""The rendered configuration says what FACTS of a real Slurm demand; nothing is started."""

import dataclasses
import socket
from pathlib import Path

from tests.cluster import config as render
from tests.cluster.config import NODES, NUM_PORTS, ClusterConfig

CONFIG = ClusterConfig(
    folder=Path("/var/tmp/x"), host="login", first_port=20_000, db_password="secret"
)


def _node_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("NodeName=")]


def test_every_node_has_a_port_of_its_own():
    lines = _node_lines(render.render_slurm_conf(CONFIG))
    ports = [word for line in lines for word in line.split() if word.startswith("Port=")]
    assert len(lines) == len(NODES) == len(set(ports))
    assert f"Port={CONFIG.first_port + NUM_PORTS - 1}" in ports


def test_no_file_names_a_system_wide_path():
    texts = [
        render.render_slurm_conf(CONFIG),
        render.render_slurmdbd_conf(CONFIG),
        render.render_my_cnf(CONFIG),
        render.render_gres_conf(CONFIG),
    ]
    values = [word.partition("=")[2] for text in texts for word in text.split()]
    paths = [value for value in values if value.startswith("/")]
    assert paths
    assert all(path.startswith("/var/tmp/x/") for path in paths)


def test_gpus_are_character_devices_of_the_right_type():
    lines = render.render_gres_conf(CONFIG).splitlines()
    assert "NodeName=v1,v2 Name=gpu Type=v100 File=/var/tmp/x/dev/nvidia[0-3]" in lines
    assert "NodeName=a1,a2 Name=gpu Type=a100 File=/var/tmp/x/dev/nvidia[0-3]" in lines


def test_gpus_may_have_no_type_but_the_nodes_features():
    untyped = dataclasses.replace(CONFIG, typed_gpus=False)
    text = render.render_slurm_conf(untyped)
    assert all("Feature=a100 Gres=gpu:4" in line for line in _node_lines(text)[-2:])
    assert "Type=" not in render.render_gres_conf(untyped)
    assert "gres/gpu:" not in text


def test_only_low_is_preempted_and_only_by_high():
    text = render.render_slurm_conf(dataclasses.replace(CONFIG, grace_time_s=17))
    lines = {
        line.split()[0].partition("=")[2]: line
        for line in text.splitlines()
        if line.startswith("PartitionName=")
    }
    assert "PriorityTier=1 PreemptMode=REQUEUE GraceTime=17" in lines["low"]
    assert "PriorityTier=10 PreemptMode=OFF" in lines["high"]
    assert all("PreemptMode=OFF" in lines[name] for name in ("cpu", "gpu"))


def test_settings_reach_slurm_conf():
    changed = dataclasses.replace(
        CONFIG, max_array_size=11, send_user_signal=False, kill_invalid_depend=True
    )
    text = render.render_slurm_conf(changed)
    assert "MaxArraySize=11\n" in text
    assert "preempt_send_user_signal" not in text
    assert "kill_invalid_depend" in text
    assert "SlurmctldParameters=preempt_send_user_signal\n" in render.render_slurm_conf(CONFIG)


def test_the_password_is_in_no_file_that_the_user_reads():
    assert "secret" not in render.render_slurm_conf(CONFIG)
    assert "secret" not in render.render_my_cnf(CONFIG)
    assert "secret" in render.render_slurmdbd_conf(CONFIG)
    assert "secret" in render.render_init_sql(CONFIG)


def test_socket_paths_fit_into_a_unix_address():
    config = dataclasses.replace(
        CONFIG, folder=Path("/var/tmp/slurm-jobs-pytest-4194304-9999999999")
    )
    with socket.socket(socket.AF_UNIX) as probe:
        assert len(str(config.munge_socket)) < 107
        assert probe.family == socket.AF_UNIX

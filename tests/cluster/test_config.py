"""The rendered configuration keeps to its folder and its secrets; nothing is started."""

import dataclasses
from pathlib import Path

from tests.cluster import config as render
from tests.cluster.config import ClusterConfig

CONFIG = ClusterConfig(
    folder=Path("/var/tmp/x"), host="login", first_port=20_000, db_password="secret"
)


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


def test_the_password_is_in_no_file_that_the_user_reads():
    assert "secret" not in render.render_slurm_conf(CONFIG)
    assert "secret" not in render.render_my_cnf(CONFIG)
    assert "secret" in render.render_slurmdbd_conf(CONFIG)
    assert "secret" in render.render_init_sql(CONFIG)


def test_socket_paths_fit_into_a_unix_address():
    config = dataclasses.replace(
        CONFIG, folder=Path("/var/tmp/slurm-jobs-pytest-4194304-9999999999")
    )
    assert len(str(config.munge_socket)) < 107

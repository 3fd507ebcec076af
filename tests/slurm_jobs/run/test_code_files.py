"""What of the user's code is copied into a run: nothing private, and nothing from elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from slurm_jobs.run.code_files import private_files_note, public_files
from slurm_jobs.run.snapshot import renew_ours, take_snapshot, tree_fingerprint

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "home" / "project" / "package"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "deep" / "m.py").write_text("A = 1\n")
    return package


def write(path: Path, text: str = "secret") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def hide(package: Path, home: Path) -> dict[str, str]:
    """Plant private files and links; return the reason for each that is named."""
    write(package / ".env")
    write(package / ".ssh" / "id_ed25519", KEY)
    write(package / "deep" / "server.txt", KEY)
    write(package / "deep" / "rsa", "-----BEGIN RSA PRIVATE KEY-----\n")
    (package / "token.txt").symlink_to(write(home / "token.txt"))
    (package / "aws").symlink_to(write(home / ".aws" / "credentials").parent)
    (package / "deep" / "hosts").symlink_to("/etc/hosts")
    (package / "config").symlink_to(write(package / "deep" / ".config" / "a").parent)
    return {
        "package/.env": "hidden",
        "package/.ssh": "hidden",
        "package/config": "hidden",
        "package/deep/.config": "hidden",
        "package/deep/rsa": "key",
        "package/deep/server.txt": "key",
        "package/token.txt": "leads out",
        "package/aws": "leads out",
        "package/deep/hosts": "leads out",
    }


def test_private_files_and_links_elsewhere_are_not_copied(package: Path, tmp_path: Path) -> None:
    before = public_files([package])
    print_before = tree_fingerprint([package])
    hide(package, tmp_path / "home")
    assert public_files([package]) == before
    assert tree_fingerprint([package]) == print_before
    made = take_snapshot(tmp_path / "code", [package]).folder / "user"
    copied = b"".join(path.read_bytes() for path in made.rglob("*") if path.is_file())
    assert b"secret" not in copied


def test_they_are_named_once_with_their_number(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert private_files_note([package]) is None
    planted = hide(package, tmp_path / "home")
    monkeypatch.setattr("slurm_jobs.run.code_files._MOST_NAMED", 99)
    note = private_files_note([package])
    assert note is not None
    assert note.startswith(f"code: {len(planted)} files or folders are not copied into the run")
    for name, reason in planted.items():
        (said,) = [part for part in note.split("), ") if f"{name} (" in f"{part} ("]
        assert reason in said
    monkeypatch.setattr("slurm_jobs.run.code_files._MOST_NAMED", 3)
    assert "and 6 more" in str(private_files_note([package]))


def test_a_hidden_file_that_the_spec_names_itself_is_copied(package: Path) -> None:
    env = write(package / ".env")
    assert public_files([env]) == {".env": env}
    assert private_files_note([env]) is None


@pytest.mark.parametrize(
    "text",
    [
        f"Bag Attributes\n    friendlyName: a\nKey Attributes: <No Attributes>\n{KEY}",
        "-----BEGIN CERTIFICATE-----\n" + "MIIC\n" * 2000 + f"-----END CERTIFICATE-----\n{KEY}",
        f"\ufeff{KEY}",
        f"\n\r\n {KEY}",
        f"key: |\n  {KEY}",
        json.dumps({"type": "service_account", "private_key": KEY}),
        "PuTTY-User-Key-File-3: ssh-ed25519\n",
        "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n",
    ],
    ids=["bag", "chain", "mark", "blank", "yaml", "json", "putty", "ssh2", "pgp"],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_private_key_is_not_copied_whatever_is_before_it(
    package: Path, text: str, encoding: str
) -> None:
    before = public_files([package])
    (package / "server.ppk").write_bytes(text.encode(encoding))
    (package / "linked.py").symlink_to("server.ppk")
    assert public_files([package]) == before
    assert "package/server.ppk (a private key)" in str(private_files_note([package]))


@pytest.mark.parametrize("name", ["test_keys.py", "keys.cpp", "make_keys.sh"])
def test_source_code_with_the_text_of_a_key_is_copied(package: Path, name: str) -> None:
    write(package / name, f'KEY = """\n{KEY}"""\n')
    assert f"package/{name}" in public_files([package])
    write(package / name, f"\ufeff\n{KEY}")
    assert f"package/{name}" not in public_files([package])


def test_certificates_and_public_keys_are_copied(package: Path) -> None:
    write(package / "ca.pem", "-----BEGIN CERTIFICATE-----\n")
    write(package / "id.pub", "-----BEGIN PUBLIC KEY-----\n")
    write(package / "rules.txt", "-----BEGIN .* PRIVATE KEY-----\n")
    copied = public_files([package])
    assert {"package/ca.pem", "package/id.pub", "package/rules.txt"} <= copied.keys()


def test_no_link_leads_out_of_the_code_that_is_named(package: Path) -> None:
    project = package.parent
    write(project.parent / "diary.txt")
    (project / "up").symlink_to("..")
    (package / "up").symlink_to("..")
    assert public_files([project]).keys() == {
        "project/package/__init__.py",
        "project/package/deep/m.py",
    }
    assert "1 file or folder is" in str(private_files_note([project]))
    assert "package/up (a link that leads out" in str(private_files_note([package]))


def test_links_within_the_named_code_are_followed(package: Path, tmp_path: Path) -> None:
    tables = write(package.parent / "tables" / "codes.csv").parent
    (package / "twin.py").symlink_to("deep/m.py")
    (package / "tables").symlink_to(tables)
    assert "package/twin.py" in public_files([package])
    assert "package/tables (a link that leads out" in str(private_files_note([package]))
    assert "package/tables/codes.csv" in public_files([package, tables])
    assert private_files_note([package, tables]) is None
    linked = tmp_path / "spec" / "package"  # the lab's package, linked next to the spec
    linked.parent.mkdir()
    linked.symlink_to(package)
    assert public_files([linked]).keys() == public_files([package]).keys()


def test_pipes_and_devices_in_the_code_are_not_opened(package: Path) -> None:
    before = public_files([package])
    os.mkfifo(package / "pipe")
    (package / "zero").symlink_to("/dev/zero")
    assert public_files([package]) == before


def test_a_run_keeps_all_of_the_code_that_it_was_given(package: Path, tmp_path: Path) -> None:
    """Earlier versions copied hidden files, too."""
    made = take_snapshot(tmp_path / "code", [package])
    (made.folder / "user" / "package" / ".table").write_text("x")
    (made.folder / "lib.zip").write_bytes(b"")
    made.folder.rename(tmp_path / "code" / "older")
    older = type(made)(folder=tmp_path / "code" / "older", user_fingerprint="of that time")
    renewed = renew_ours(tmp_path / "code", older)
    assert (renewed.folder / "user" / "package" / ".table").exists()
    assert renewed.user_fingerprint == "of that time"

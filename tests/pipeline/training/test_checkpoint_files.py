"""Folders of checkpoints."""

from pipeline.training import checkpoint_files as files


def test_unfinished_checkpoints_are_never_listed(tmp_path):
    for name in ("step-00000004", ".step-00000006.1.tmp", "step-00000010", ".unreadable-step-1"):
        (tmp_path / name).mkdir()
    assert [step for step, _ in files.list_checkpoints(tmp_path)] == [10, 4]
    files.remove_leftovers(tmp_path)
    assert not (tmp_path / ".step-00000006.1.tmp").exists()
    files.keep_newest(tmp_path, 1)
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000010"]


def test_every_file_is_checked_by_one_rank():
    facts = {str(i): files.FileFacts(num_bytes=i, xxh3="") for i in range(5)}
    shares = [files.share_of_files(facts, rank, 2) for rank in (0, 1)]
    assert sorted([*shares[0], *shares[1]]) == sorted(facts)


def test_damage_is_named(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    facts = {"a": files.hash_file(tmp_path / "a"), "b": files.FileFacts(num_bytes=1, xxh3="")}
    (tmp_path / "a").write_bytes(b"abd")
    first, second = files.damaged_files(tmp_path, facts)
    assert first.startswith("a: 3 bytes")
    assert second == "b: No such file or directory"

"""The program of the initializers: what it reads, what it writes, and hostile stores."""

import os

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from waiting import until

from gangsched.core.bounds import IGNORE_PATTERNS, STORAGE_URI_LETTERS
from gangsched.initializers import __main__ as program
from gangsched.initializers.objects import copy_objects, s3
from gangsched.initializers.source import Source, StorageError, parse_source, patterns
from gangsched.initializers.target import Target
from gangsched.initializers.volume import copy_volume

ADDRESSES = {
    "hf://tatsu-lab/alpaca": Source("hf", "tatsu-lab", "alpaca"),
    "hf://gpt2": Source("hf", "gpt2", ""),
    "s3://bucket/a/b/": Source("s3", "bucket", "a/b"),
    "s3://bucket": Source("s3", "bucket", ""),
    "pvc://claim/a": Source("pvc", "claim", "a"),
    "pvc://claim": Source("pvc", "claim", ""),
    "file:///mnt/data/a": Source("file", "", "data/a"),
}


@pytest.mark.parametrize("uri", ADDRESSES)
def test_an_address_is_read(uri):
    assert parse_source(uri) == ADDRESSES[uri]


REFUSED = {
    "": "allowed are",
    "tatsu-lab/alpaca": "allowed are",
    "http://169.254.169.254/latest": "allowed are",
    "ftp://key:secret@host": "allowed are",
    "s3://key:secret@bucket/a": "no address of s3",
    "s3://bucket/../other": "no address of s3",
    "s3://bucket//etc": "no address of s3",
    "s3://Bucket_/a": "no address of s3",
    "hf://a/b\n": "no address of hf",
    "hf://../x": "no address of hf",
    "hf://a/b%2F..": "names no repository",
    "pvc://claim/../../etc": "no address of pvc",
    "file://host/mnt/x": "no address of file",
    "file:///mnt": "only volumes mounted below /mnt",
    "file:///etc/shadow": "only volumes mounted below /mnt",
    "file:///mnt/../etc": "no address of file",
    "hf://" + "a" * STORAGE_URI_LETTERS.most: "at most 2048",
}


@pytest.mark.parametrize("uri", REFUSED, ids=lambda uri: uri[:30])
def test_another_address_is_refused_without_what_it_may_hide(uri):
    with pytest.raises(StorageError) as said:
        parse_source(uri)
    assert REFUSED[uri] in str(said.value)
    assert "secret" not in str(said.value)


def test_patterns_are_separated_by_commas_and_bounded():
    assert patterns("*.bin, *.pt,,", 2) == ["*.bin", "*.pt"]
    with pytest.raises(StorageError, match="65 patterns; at most 64"):
        patterns("a," * 65, IGNORE_PATTERNS.most)


@pytest.fixture
def target(tmp_path):
    """A folder that is filled."""
    target = Target(tmp_path / "workspace" / "dataset", 5, 1_000)
    target.prepare()
    return target


def read(target) -> dict[str, str]:
    """Return the files of a folder."""
    files = (path for path in target.root.rglob("*") if path.is_file())
    return {str(path.relative_to(target.root)): path.read_text() for path in files}


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../../x", "a//b", ".", "", "a\0b", "a\\b", "x" * 300, "a/" * 40]
)
def test_no_name_leads_out_of_the_folder(target, name):
    with pytest.raises(StorageError, match="a relative path"):
        target.write(name, [b"x"], 1)
    assert not read(target)


def test_a_link_in_the_folder_is_not_followed(target, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (target.root / "a").symlink_to(outside)
    with pytest.raises(OSError, match="a"):
        target.write("a/x", [b"x"], 1)
    (target.root / "x").symlink_to(outside / "y")
    target.write("x", [b"x"], 1)
    assert not list(outside.iterdir())
    assert not (target.root / "x").is_symlink()


def test_a_folder_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "dataset").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="is no folder"):
        Target(tmp_path / "dataset", 1, 1).prepare()


@pytest.mark.parametrize("chunks", [[b"ab", b"c"], [b"a"], [b"abcdef"] * 1_000])
def test_a_store_that_sends_another_number_of_bytes_leaves_no_file(target, chunks):
    with pytest.raises(StorageError, match="'x' has 2 bytes, and the store sent"):
        target.write("x", chunks, 2)
    assert not list(target.root.iterdir())


def test_files_and_bytes_are_bounded(target):
    with pytest.raises(StorageError, match="more than 1000 bytes"):
        Target(target.root, 5, 1_000).write("x", [], 1_001)
    for number in range(5):
        target.write(str(number), [b"x"], 1)
    with pytest.raises(StorageError, match="more than 5 files"):
        target.write("y", [b"x"], 1)
    full = Target(target.root, 5, 2**80)
    with pytest.raises(StorageError, match="are free"):
        full.write("x", [], 2**70)


@pytest.fixture
def volume(tmp_path):
    """A mounted volume, and a file beside it."""
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "volume"
    (root / "set" / "deep").mkdir(parents=True)
    (root / "set" / "a.json").write_text("a")
    (root / "set" / "deep" / "b.json").write_text("b")
    (root / "set" / "c.bin").write_text("c")
    (root / "blob").write_text("blob")
    return root


def test_a_folder_of_a_volume_is_copied(volume, target):
    target.ignored = ["*.bin"]
    (volume / "set" / "link.json").symlink_to("../blob")
    copy_volume(volume, "set", target)
    assert read(target) == {"a.json": "a", "deep/b.json": "b", "link.json": "blob"}
    assert (target.files, target.size) == (3, 6)


def test_one_file_of_a_volume_is_copied_by_its_name(volume, target):
    copy_volume(volume, "set/deep/b.json", target)
    assert read(target) == {"b.json": "b"}


def test_what_is_not_there_is_said(volume, target):
    with pytest.raises(StorageError, match="the volume has no 'other'"):
        copy_volume(volume, "other", target)


def _link_out(volume):
    (volume / "set" / "x").symlink_to("../../secret")


def _link_absolute(volume):
    (volume / "set" / "x").symlink_to("/etc/hostname")


def _folder_out(volume):
    (volume / "set" / "x").symlink_to("/etc")


def _loop(volume):
    (volume / "set" / "x").symlink_to("x")


def _folder_inside(volume):
    (volume / "set" / "x").symlink_to("deep")


def _pipe(volume):
    os.mkfifo(volume / "set" / "x")


HOSTILE = {
    _link_out: "leads out of the volume",
    _link_absolute: "leads out of the volume",
    _folder_out: "leads out of the volume",
    _loop: "has no 'x'",
    _folder_inside: "no regular file",
    _pipe: "no regular file",
}


@pytest.mark.parametrize("lay", HOSTILE, ids=lambda lay: lay.__name__)
def test_a_hostile_volume_is_refused_and_read_no_further(volume, target, lay):
    lay(volume)
    with pytest.raises(StorageError, match=HOSTILE[lay]):
        copy_volume(volume, "set", target)
    assert "secret" not in read(target).values()


def test_a_path_that_is_a_link_out_of_the_volume_is_refused(volume, target):
    (volume / "out").symlink_to("..")
    with pytest.raises(StorageError, match="leads out of the volume"):
        copy_volume(volume, "out", target)


def test_objects_below_a_prefix_are_copied(volume, target):
    store = SubTreeFileSystem(str(volume.parent), LocalFileSystem())
    target.ignored = ["*.bin"]
    copy_objects(store, "volume", "set", target)
    assert read(target) == {"a.json": "a", "deep/b.json": "b"}
    copy_objects(store, "volume", "blob", target)
    assert read(target)["blob"] == "blob"


def test_a_prefix_without_objects_is_said(volume, target):
    store = SubTreeFileSystem(str(volume.parent), LocalFileSystem())
    with pytest.raises(StorageError, match="s3://volume/other has no objects"):
        copy_objects(store, "volume", "other", target)


def test_an_endpoint_is_an_address():
    for endpoint in ("store", "ftp://store", "http://"):
        with pytest.raises(StorageError, match="ENDPOINT is no address"):
            s3({"ENDPOINT": endpoint})


# -- the program ---------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch, caplog):
    """Run the program with a workspace and mounts of its own; return the code and the log."""
    monkeypatch.setattr(program, "WORKSPACE", tmp_path / "workspace")
    monkeypatch.setattr(program, "CLAIM_MOUNT", str(tmp_path / "volume"))
    monkeypatch.setattr(program.resource, "setrlimit", lambda *_: None)
    caplog.set_level("INFO")

    def call(*arguments, **variables):
        return program.main(list(arguments), variables), caplog.text

    return call


def test_the_program_fills_the_folder_of_its_part(run, volume, tmp_path):
    code, log = run("model", STORAGE_URI="pvc://claim/set", IGNORE_PATTERNS="*.bin,*.pt")
    assert code == 0, log
    assert (tmp_path / "workspace" / "model" / "deep" / "b.json").read_text() == "b"
    assert "pvc://claim/set: 2 files, 2 bytes" in log


def test_it_can_be_run_again_after_a_restart(run, volume, tmp_path):
    assert run("dataset", STORAGE_URI="pvc://claim/set")[0] == 0
    (volume / "set" / "a.json").write_text("new")
    assert run("dataset", STORAGE_URI="pvc://claim/set")[0] == 0
    assert (tmp_path / "workspace" / "dataset" / "a.json").read_text() == "new"


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        ((), {}, "one argument is needed: dataset or model"),
        (("all",), {}, "one argument is needed"),
        (("dataset",), {}, "STORAGE_URI is not set"),
        (("dataset",), {"STORAGE_URI": "gs://x"}, "allowed are"),
    ],
)
def test_what_it_needs_is_said(run, arguments, variables, words):
    code, log = run(*arguments, **variables)
    assert code
    assert words in log


def test_no_error_of_a_library_shows_a_token(run, monkeypatch):
    def fail(*_):
        raise RuntimeError("403 for hf_token and KEY at http://hub")

    monkeypatch.setattr(program, "parse_source", fail)
    keys = {"ACCESS_TOKEN": "hf_token", "SECRET_ACCESS_KEY": "KEY"}
    code, log = run("dataset", STORAGE_URI="hf://a/b", **keys)
    assert code == 1
    assert "403 for [ACCESS_TOKEN] and [SECRET_ACCESS_KEY] at http://hub" in log
    assert "hf_token" not in log


def test_a_store_that_never_answers_ends_the_program(run, monkeypatch):
    ends = []
    monkeypatch.setattr(program, "INITIALIZER_S", program.INITIALIZER_S._replace(most=0.01))
    monkeypatch.setattr(program.os, "_exit", ends.append)

    def never(*_):
        until(lambda: ends, "the program to end itself")
        raise RuntimeError("no answer")

    monkeypatch.setattr(program, "parse_source", never)
    _, log = run("dataset", STORAGE_URI="hf://a/b")
    assert ends == [1]
    assert "not fetched within" in log

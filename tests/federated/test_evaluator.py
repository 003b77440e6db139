"""The evaluator believes nobody: an honest run passes, and whoever recorded a lie is named.

In the first version a policy that forged its record got a mean delay of -13.6 and a run hash.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_support import change, write_records
from support import make_world

from fogveil.core.errors import InfrastructureError, InputError
from fogveil.core.files import open_untrusted, read_untrusted
from fogveil.testbed.launch.docker.compose_steps import copy_volumes
from fogveil.testbed.launch.join_records import join, remove_records
from fogveil.testbed.launch.run_folder import PARTICIPANTS
from fogveil.testbed.privacy.inspect.recordings import Recordings, read_recording

OWN = Path(__file__).parent / "own_policies.py"


def make_trace(folder: Path) -> dict:
    """A trace whose jobs bring their own demands, some of them at one instant."""
    path = folder / "trace.csv"
    rows = [f"{number // 8},{4000 + 100 * (number % 7)}\n" for number in range(40, 160)]
    path.write_text("t,d\n" + "".join(rows))
    return {"kind": "trace", "file": str(path), "columns": {"time": "t", "demand": "d"}}


WORLDS = {
    "count": ("jsq", {}),
    "cloud": (f"{OWN}:SeesCloud", {"count": "in_system", "loops__to_cloud": 0.5}),
    "total": (f"{OWN}:SeesTotal", {"disclosure": "total"}),
    "none": ("round-robin", {"service__distribution": "exponential"}),
    "full": ("setr", {"fog__discipline": "sjf", "fog__servers": 2}),
    "sizes": ("setr", {"service": {"distribution": "pareto", "tail": 1.5}}),
    "trace": (f"{OWN}:Ahead", {}),
}


@pytest.fixture(scope="module", params=WORLDS)
def honest(request, tmp_path_factory):
    """A world, its honest records, and the hash of its run in the embedded engine."""
    folder = tmp_path_factory.mktemp(request.param)
    policy, overrides = WORLDS[request.param]
    if request.param == "trace":
        overrides = {"sources": make_trace(folder)}
    world = make_world(horizon=900, **overrides)
    return world, *write_records(world, policy, folder / PARTICIPANTS)


@pytest.fixture
def records(tmp_path):
    """A world, and honest records that a test may change."""
    world = make_world(horizon=600, loops__to_cloud=0.5)
    return world, write_records(world, "jsq", tmp_path / PARTICIPANTS)[0]


def test_an_honest_run_is_joined_to_the_hash_of_the_embedded_one(honest):
    world, split, run_hash = honest
    assert join(world, split, 0, []) == run_hash


# --- any single lie ------------------------------------------------------------------------------

NUMBERS = ("0", "1", "2", "-1", "3", "17", str(2**32 - 1), "1" + "0" * 40)
TIMES = ("nan", "inf", "-13.6", "0.0", "1e300", "4.25")


def other_value(draw, field: str, value: str, split) -> str:
    """Draw another value for a field of a record."""
    if field == "provider":
        others = (*split.roster.fogs, split.roster.cloud, "agent")
    elif field == "passed_on":
        others = ("0", "1")
    elif field == "seen":
        counts = value.split()
        if not counts or draw(st.booleans()):
            return draw(st.sampled_from([f"{value} 0", "5 5 5 5 5"]))
        place = draw(st.integers(0, len(counts) - 1))
        counts[place] = draw(st.sampled_from([n for n in NUMBERS if n != counts[place]]))
        return " ".join(counts)
    elif field in ("job", "cluster", "category", "node"):
        others = NUMBERS
    else:
        near = repr(float(value) * (1 + 2**-52)) if value else "1.0"
        others = (near, *TIMES)
    return draw(st.sampled_from([other for other in others if other != value]))


@settings(max_examples=120)
@given(data=st.data())
def test_any_changed_field_of_any_record_is_noticed_and_its_owner_named(honest, data):
    world, split, _ = honest
    files = sorted(split.folder_of("agent").parent.rglob("*.csv"))
    path = data.draw(st.sampled_from([file for file in files if file.read_text().count("\n") > 1]))
    before, changed = path.read_text(), []

    def lie(lines):
        number = data.draw(st.integers(0, len(lines) - 1))
        fields = lines[number].split(",")
        names = before.splitlines()[0].split(",")
        place = data.draw(st.integers(0, len(fields) - 1))
        fields[place] = other_value(data.draw, names[place], fields[place], split)
        changed.append((names[place], lines[number], fields))
        lines[number] = ",".join(fields)

    try:
        change(path, lie)
        with pytest.raises(InfrastructureError) as error:
            join(world, split, 0, [])
        assert re.search(rf"\b{re.escape(path.parent.name)}\b", str(error.value)), changed
        assert len(str(error.value)) < 300
    finally:
        path.write_text(before)


@pytest.mark.parametrize("how", ["missing", "twice", "swapped", "half", "empty", "binary", "gone"])
@pytest.mark.parametrize(
    "file", ["agent/decisions", "fog-2/journal", "cloud/journal", "sources-2/"]
)
def test_lines_that_are_missing_or_too_many_are_noticed(records, how, file):
    world, split = records
    owner, _, kind = file.partition("/")
    for path in sorted(split.folder_of(owner).glob(f"{kind}*.csv")):
        if how == "swapped" and ("journal" in path.name or "feedback" in path.name):
            continue  # their order says nothing
        before = path.read_text()
        edits = {
            "missing": lambda lines: lines.pop(3),
            "twice": lambda lines: lines.insert(3, lines[1]),
            "swapped": lambda lines: lines.insert(3, lines.pop(2)),
            "half": lambda lines: lines.append(lines.pop()[:5]),
        }
        if how in edits:
            change(path, edits[how])
        elif how == "gone":
            path.unlink()
        else:
            path.write_bytes(b"" if how == "empty" else bytes(range(256)) * 20)
        with pytest.raises(InfrastructureError, match=rf"\b{owner}\b") as error:
            join(world, split, 0, [])
        assert "\n" not in str(error.value)
        path.write_text(before)


def test_the_sentence_says_who_disagrees_with_whom(records):
    world, split = records
    path = split.folder_of("agent") / "decisions-0000.csv"

    def forge(lines):
        fields = lines[5].split(",")
        fields[4] = "-13.6"
        lines[5] = ",".join(fields)

    change(path, forge)
    with pytest.raises(
        InfrastructureError,
        match=r"^the records do not agree: the agent's record says that job \d+ was emitted at "
        r"-13\.6; sources-\d recorded \d+\.\d+$",
    ) as error:
        join(world, split, 0, [])
    assert error.value.exit_code == 3


def test_a_job_that_was_served_elsewhere_is_the_agents_lie(records):
    """Both providers agree against the agent."""
    world, split = records
    lines = []
    change(split.folder_of("fog-1") / "journal-0000.csv", lambda rows: lines.append(rows.pop(0)))
    change(split.folder_of("fog-2") / "journal-0000.csv", lambda rows: rows.append(lines[0]))
    with pytest.raises(InfrastructureError, match=r"the agent's record places job \d+ on fog-1"):
        join(world, split, 0, [])


# --- something else in the place of a record -----------------------------------------------------


def put(kind: str, path: Path) -> None:
    """Put something into the place of a record, as its owner may do."""
    saved = path.with_suffix(".saved")
    path.rename(saved)
    if kind == "FIFO":  # the first version waited for its writer, for ever
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(saved)
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    elif kind == "hard link":
        path.hardlink_to(saved)
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge file":
        shutil.copy(saved, path)
        os.truncate(path, 2**40)  # sparse: it takes no place on the disk
    elif kind == "somebody else's":
        shutil.copy(saved, path)
        os.chown(path, 65534, 65534)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)


REASONS = {
    "FIFO": "is not a regular file",
    "link": "is a symbolic link",
    "link to a device": "is a symbolic link",
    "hard link": "has another name elsewhere",
    "folder": "is not a regular file",
    "huge file": "is larger than the",
    "somebody else's": "belongs to somebody else",
    "socket": "",
}


@pytest.mark.parametrize("kind", REASONS)
def test_what_is_no_file_of_the_participants_own_is_not_read(records, kind):
    """In the first version a FIFO hung the launcher, and a link had it read anything as root."""
    if kind == "somebody else's" and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    world, split = records
    for owner, name in (
        ("agent", "decisions-0000.csv"),
        ("fog-2", "journal-0000.csv"),
        ("sources-1", "emissions-0000.csv"),
        ("sources-1", "feedback-0000.csv"),
    ):
        path = split.folder_of(owner) / name
        put(kind, path)
        with pytest.raises(InfrastructureError, match=rf"record of {owner} .*{REASONS[kind]}"):
            join(world, split, 0, [])
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        path.with_suffix(".saved").rename(path)
    assert join(world, split, 0, [])


@pytest.mark.parametrize("kind", ["FIFO", "link to a device", "folder"])
def test_the_inspector_does_not_wait_for_what_is_no_recording(records, kind):
    _, split = records
    path = split.folder_of("fog-2") / "traffic.jsonl"
    path.touch()
    put(kind, path)
    with pytest.raises(InputError, match=f"cannot be read: {REASONS[kind]}"):
        list(read_recording(path))
    config = split.folder_of("fog-3") / "config.json"
    os.mkfifo(config)
    with pytest.raises(InputError, match="is not a regular file"):
        _ = Recordings(split.folder_of("agent").parent.parent).missing


def test_a_subfolder_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.pem").write_text("key")
    (tmp_path / "folder").symlink_to("secret")
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        open_untrusted(tmp_path / "folder" / "key.pem")
    assert read_untrusted(tmp_path / "secret" / "key.pem", 3) == b"key"
    with pytest.raises(OSError, match="larger than the 2 bytes"):
        read_untrusted(tmp_path / "secret" / "key.pem", 2)


def test_records_are_removed_whatever_stands_in_their_place(records):
    _, split = records
    put("folder", split.folder_of("fog-1") / "journal-0000.csv")
    put("link", split.folder_of("fog-2") / "journal-0000.csv")
    remove_records(split, 0)
    left = {path.name for path in split.folder_of("agent").parent.rglob("*.csv")}
    assert left == {"journal-0000.csv"}, "only the folder"
    assert (split.folder_of("fog-2") / "journal-0000.saved").exists(), "links are not followed"


def test_copies_of_the_folders_hold_no_keys_and_follow_no_links(tmp_path):
    """The first version copied, as root, what a link in a participant's volume led to."""
    folder = tmp_path / "volumes" / "agent"
    (folder / "identity").mkdir(parents=True)
    (folder / "identity" / "key.pem").write_text("key")
    (tmp_path / "shadow").write_text("secret")
    (folder / "journal.csv").write_text("mine")
    (folder / "link.csv").symlink_to(tmp_path / "shadow")
    (folder / "hard.csv").hardlink_to(tmp_path / "shadow")
    (folder / "folder").symlink_to(tmp_path)
    os.mkfifo(folder / "fifo.csv")
    copy_volumes(tmp_path / "volumes", tmp_path / "out")
    copied = sorted(path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*"))
    assert copied == [Path("agent"), Path("agent/journal.csv")]

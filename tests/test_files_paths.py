import gzip
import os
import tempfile
from itertools import accumulate, chain

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert.files.paths import (
    WILDCARDS,
    describe_folder,
    file_size,
    find_file,
    finite,
    index_path,
    is_file,
    is_gzip,
    list_folder,
    match_file,
    match_files,
    parse_json,
    part_path,
    paths_from,
    read_chunks,
    read_lines,
    read_part,
    split_by_size,
    without_wildcards,
)

RAM = "ram://test_files_paths"


@pytest.fixture
def folder(tmp_path):
    for name in ("b.txt", "a10.txt", "a2.txt", "[x].txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "sub.txt").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ("b.txt,a2.txt", ["b.txt", "a2.txt"]),
        ("a*.txt", ["a10.txt", "a2.txt"]),
        ("b.txt,*.txt", ["b.txt", "[x].txt", "a10.txt", "a2.txt", "b.txt"]),
        ("[x].txt", ["[x].txt"]),
        ("a?.txt", ["a2.txt"]),
        ("b.txt,,a?.txt,", ["b.txt", "a2.txt"]),
    ],
)
def test_patterns_name_files_in_their_order(folder, patterns, names):
    paths = (str(folder / pattern) if pattern else "" for pattern in patterns.split(","))
    patterns = ", ".join(paths)
    expected = [str(folder / name) for name in names]
    assert match_files(patterns, "input_file") == expected


def test_a_pattern_matches_hidden_files_only_where_it_begins_with_a_dot(tmp_path):
    for name in ("a", ".a.index", ".a.part", ".b.0f.partial"):
        (tmp_path / name).touch()
    assert index_path(str(tmp_path / "a")) == str(tmp_path / ".a.index")
    assert part_path(str(tmp_path / "a")) == str(tmp_path / ".a.part")
    for pattern, names in (
        ("*", ["a"]),
        ("[.a]*", ["a"]),
        (".*.part*", [".a.part", ".b.0f.partial"]),
    ):
        matched = match_files(str(tmp_path / pattern), "input_file")
        assert matched == [str(tmp_path / name) for name in names]
    named = str(tmp_path / ".a.index")
    assert match_files(named, "input_file") == [named]


@pytest.mark.parametrize("missing", ["none.txt", "none*.txt", "sub.txt"])
def test_a_pattern_without_a_file_is_named_with_its_flag(folder, missing):
    pattern = str(folder / missing)
    with pytest.raises(ValueError, match=r"`corpus` must name existing files\. ") as error:
        match_files(f"{folder}/b.txt,{pattern}", "corpus")
    assert repr(pattern) in str(error.value)
    for nothing in ("", ","):
        with pytest.raises(ValueError, match=f"existing files. '{nothing}' matches none"):
            match_files(nothing, "corpus")


def test_a_pattern_of_several_files_is_no_single_file(folder):
    for name in ("one.txt", "two, three.txt"):
        path = os.path.join(folder, name)
        with open(path, "w"):
            assert match_file(path, "input_file") == path
    assert match_file(f"{folder}/on*.txt", "input_file") == f"{folder}/one.txt"
    for several in (f"{folder}/*", f"{folder}/one.txt,{folder}/one.txt"):
        with pytest.raises(ValueError, match=r"`corpus` must name a single file\. Received "):
            match_file(several, "corpus")
    with pytest.raises(ValueError, match="`corpus` must name existing files"):
        match_file(f"{folder}/none*", "corpus")


def test_gzip_is_recognized_by_its_content(tmp_path):
    content = b"one\r\n\ntwo \xff\nlast"
    plain, packed = tmp_path / "plain.gz", tmp_path / "packed.txt"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content[:7]) + gzip.compress(content[7:]))
    for path in (plain, packed):
        lines = list(read_lines(str(path)))
        assert [line for line, _ in lines] == [b"one\r\n", b"\n", b"two \xff\n", b"last"]
        assert lines[-1][1] == file_size(str(path))


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:20] + b"\0\0\0" + b[23:]])
def test_damaged_gzip_is_named(tmp_path, damage):
    path = tmp_path / "text.gz"
    path.write_bytes(damage(gzip.compress(os.urandom(5000))))
    with pytest.raises(ValueError, match=r"text\.gz' must be a complete gzip file"):
        list(read_lines(str(path)))


def test_an_empty_file_has_no_lines(tmp_path):
    (tmp_path / "empty").touch()
    assert list(read_lines(str(tmp_path / "empty"))) == []


@pytest.mark.parametrize("name", ["folder", "fold[er]"])
@pytest.mark.parametrize("remote", [False, True])
def test_files_are_found_and_folders_described(tmp_path, remote, name):
    folder = f"{RAM}/{name}" if remote else str(tmp_path / name)
    missing = " not a folder" if not remote else " empty"
    assert describe_folder(folder) == f"{folder!r}, which is{missing}"
    tf.io.gfile.makedirs(folder)
    assert describe_folder(folder) == f"{folder!r}, which is empty"
    names = [f"{i:02}.txt" for i in range(14)]
    for each in [*names, ".hidden"]:
        with tf.io.gfile.GFile(f"{folder}/{each}", "w") as file:
            file.write("a")
    assert list_folder(folder) == [".hidden", *names]
    assert describe_folder(folder) == f"{folder!r}, which holds {names[:12]} and 3 more"
    assert find_file(folder, ["x", "03.txt", "01.txt"]) == f"{folder}/03.txt"
    assert find_file(folder, ["x"]) is None


@pytest.mark.parametrize("name", ["plain", "a,b", "a[1]", "a*"])
def test_remote_files_are_found_whatever_their_names(name):
    folder = f"{RAM}/{name}"
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile(f"{folder}/x", "w") as file:
        file.write("a")
    assert is_file(f"{folder}/x")
    assert not is_file(folder)
    assert not is_file(f"{folder}/y")


@pytest.mark.parametrize("read", [is_gzip, read_lines, lambda path: read_part(path, 0, 9)])
def test_a_missing_remote_file_is_the_same_error_as_a_local_one(read):
    with pytest.raises(FileNotFoundError):
        list(read(f"{RAM}/none"))


@given(
    st.lists(st.sampled_from([b"", b" ", b"\t\r", b"word", b"two words"]), max_size=30), st.data()
)
def test_the_parts_of_a_file_have_its_lines_each_once_and_cut_no_document(lines, data):
    text = b"\n".join(lines) + data.draw(st.sampled_from([b"", b"\n"]))
    size = data.draw(st.integers(1, 20))
    with tempfile.NamedTemporaryFile() as file:
        file.write(text)
        file.flush()
        parts = [
            b"".join(read_part(file.name, start, start + size))
            for start in range(0, len(text), size)
        ]
    assert b"".join(parts) == text
    assert all(part.split(b"\n")[0].strip() == b"" for part in parts[1:] if part)


@pytest.mark.parametrize("text", ['{"a": [1, "\u00e9"]}', b'{"a": [1, "\xc3\xa9"]}'])
def test_json_is_read_from_text_and_from_bytes(text):
    assert parse_json(text) == {"a": [1, "\u00e9"]}


@pytest.mark.parametrize("text", ["", "{", b"\xff", "[" * 100_000, b'{"a":' * 100_000])
def test_what_is_no_json_or_too_deep_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"Expecting|decode|recursion"):
        parse_json(text)


def test_numbers_that_json_lacks_are_none_at_any_depth():
    values = {"a": (float("nan"), 1.5, [float("-inf"), {"b": float("inf")}]), "c": "nan", "d": True}
    assert finite(values) == {"a": [None, 1.5, [None, {"b": None}]], "c": "nan", "d": True}


@given(st.lists(st.integers(1, 9)), st.integers(1, 20))
def test_chunks_are_cut_where_they_reach_the_limit(items, limit):
    chunks = list(split_by_size(items, lambda item: item, limit))
    assert list(chain.from_iterable(chunks)) == items
    assert all(sum(chunk[:-1]) < limit for chunk in chunks)
    assert all(sum(chunk) >= limit for chunk in chunks[:-1])


def test_a_chunk_is_given_before_the_next_is_read():
    read = []
    items = (read.append(number) or number for number in range(1000))
    next(split_by_size(items, lambda _: 1, 3))
    assert read == [0, 1, 2]


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_chunks_of_files_have_all_lines_and_say_how_much_is_read(tmp_path, limit):
    contents = [b"a\nbb\nc\n", b"", b"d\n", gzip.compress(b"e\nf", mtime=0), b"\ng"]
    paths = [str(tmp_path / str(number)) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        with open(path, "wb") as file:
            file.write(content)
    chunks = list(read_chunks(paths, limit))
    assert b"".join(line for chunk in chunks for line in chunk.lines) == b"a\nbb\nc\nd\ne\nf\ng"
    ends = list(accumulate(map(len, contents)))
    begins = [number for number, chunk in enumerate(chunks) if chunk.is_first]
    assert [chunks[begin - 1].position for begin in begins[1:]] == ends[:-1]
    assert chunks[-1].position == ends[-1]
    positions = [chunk.position for chunk in chunks]
    assert positions == sorted(positions)


def test_paths_that_begin_alike_are_found_wherever_they_are_named_from(tmp_path, monkeypatch):
    for name in ("a.2", "a.1", "b"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert paths_from("a.") == ["a.1", "a.2"]
    assert paths_from(os.path.join(".", "a.")) == [
        os.path.join(".", name) for name in ("a.1", "a.2")
    ]
    assert paths_from(str(tmp_path / "a.")) == [str(tmp_path / name) for name in ("a.1", "a.2")]
    # No path is no folder.
    assert paths_from("") == []


def test_a_path_with_wildcards_has_another_one_wherever_it_is_named_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("plain", "a[1]*"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
        with without_wildcards(name) as path:
            assert not WILDCARDS & set(path)
            with open(os.path.join(path, "x")) as file:
                assert file.read() == name
            assert (path == name) == (name == "plain")
    with without_wildcards("ram://a*") as path:
        assert path == "ram://a*"

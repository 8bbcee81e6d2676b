import base64
import json
import re
import shutil

import pytest
from conftest import GOLDEN, ROOT, eagerly

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# What may be in the output of a notebook of somebody else's machine alone.
LOCAL_PATH = re.compile(r"(?<![\w.])/(?:home|root|tmp|usr|var|work|Users|opt|mnt)/|[A-Z]:\\\\")
# A smaller model, that takes no more tokens, and a few steps.
SMALLER = {
    r"max_seq_length=\d+": "max_seq_length=48",
    r"num_train_epochs=[\d.]+": "num_train_epochs=1",
}


def with_pages(text):
    """Returns the text of a notebook with its pages decoded."""
    address = re.compile(r"data:text/html;base64,([\w+/=]+)")
    return address.sub(lambda match: base64.b64decode(match[1]).decode(), text)


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


def test_notebooks_are_there():
    assert [path.stem for path in NOTEBOOKS] == ["csv", "inside", "questions"]


def test_a_notebook_is_a_small_valid_file_with_outputs_and_without_local_paths(path):
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert len(text.encode()) < 200_000
    assert LOCAL_PATH.findall(with_pages(text)) == []
    assert notebook.keys() == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (notebook["nbformat"], notebook["nbformat_minor"]) >= (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    for cell in cells:
        fields = {"outputs", "execution_count"} if cell in code else set()
        assert cell.keys() == {"id", "cell_type", "metadata", "source", *fields}
    # Run once, from the first cell to the last, without an error.
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    kinds = {output["output_type"] for cell in code for output in cell["outputs"]}
    assert kinds == {"stream", "execute_result"}


def test_links_of_a_notebook_lead_to_files(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\((?!https:)([^)#\s]+)", text)
    assert links and [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.slow
def test_the_cells_of_a_notebook_run(path, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "sample", tmp_path / "sample")
    pretrained = tmp_path / "demo_output/pretrained"
    pretrained.mkdir(parents=True)
    for file in (GOLDEN / "bert_config.json", GOLDEN / "vocab.txt", *GOLDEN.glob("bert_model.*")):
        shutil.copy(file, pretrained)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    names = {}
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    with eagerly():
        for number, cell in enumerate(cells):
            if cell["cell_type"] == "code":
                source = "".join(cell["source"])
                for pattern, smaller in SMALLER.items():
                    source = re.sub(pattern, smaller, source)
                exec(compile(source, f"{path.name}, cell {number}", "exec"), names)

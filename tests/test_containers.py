import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from conftest import ROOT, free_ports
from helpers.served_models import make_model, served

import serve

FOLDER = ROOT / "containers"
# A line that ends in a backslash goes on.
FILES = {
    path.name: path.read_text(encoding="utf-8").replace("\\\n", " ")
    for path in FOLDER.glob("*.Dockerfile")
}
SERVE = FILES["serve.Dockerfile"]
SERVICES = yaml.safe_load((FOLDER / "compose.yml").read_text(encoding="utf-8"))["services"]
PORT = serve.Settings(model_dir="any").port


def instructions(text, name):
    return re.findall(rf"^\s*{name} +(.+)", text, flags=re.MULTILINE)


def pins(folder, name):
    return {*re.findall(r"^\w\S*==.*", (folder / name).read_text(encoding="utf-8"), flags=re.M)}


@pytest.mark.parametrize("name", FILES)
def test_what_is_copied_is_in_a_clone_and_all_that_a_wheel_is_made_of(name):
    lines = [line for line in instructions(FILES[name], "COPY") if not line.startswith("--from")]
    sources = [source for line in lines for source in line.split()[:-1]]
    assert all([*ROOT.glob(source)] for source in sources)
    assert {"pyproject.toml", "README.md", "LICENSE", "*.py", "bert"} <= {*sources}


def test_the_server_has_the_versions_that_the_tests_have(tmp_path):
    for name in ("requirements.txt", "requirements-dev.txt"):
        shutil.copy(ROOT / name, tmp_path)
    [install] = [line for line in instructions(SERVE, "RUN") if "serve.txt" in line]
    first, second, *_ = install.split("&&")
    subprocess.run(["bash", "-euc", f"{first} && {second}"], cwd=tmp_path, check=True)
    found = {pin.replace("tensorflow-cpu==", "tensorflow==") for pin in pins(tmp_path, "serve.txt")}
    added = found - pins(ROOT, "requirements.txt")
    assert len(found) == len(added) + len(pins(ROOT, "requirements.txt"))
    assert added <= pins(ROOT, "requirements-dev.txt")
    assert {pin.partition("==")[0] for pin in added} == {"aiohttp", "prometheus_client"}


def test_the_server_is_started_with_flags_that_it_has():
    [entry] = instructions(SERVE, "ENTRYPOINT")
    program, script, *flags = json.loads(entry)
    assert (program, script) == ("bert", "serve")
    values = dict(flag.removeprefix("--").split("=") for flag in flags)
    # Which checks them.
    serve.Settings(**values)
    [model] = SERVICES["serve"]["volumes"]
    assert (model["target"], model["read_only"]) == (values["model_dir"], True)
    assert (ROOT / SERVICES["serve"]["build"]["dockerfile"]).is_file()


def test_the_health_of_a_server_is_seen_and_so_is_a_server_that_is_gone():
    [check] = re.findall(r"HEALTHCHECK.*CMD (\[.+\])", SERVE)
    python, option, code = json.loads(check)
    assert (python, option) == ("python", "-c") and f":{PORT}/" in code

    def status(address):
        command = [sys.executable, option, code.replace(f"127.0.0.1:{PORT}/", address)]
        return subprocess.run(command, capture_output=True, check=False).returncode

    with served(make_model("labels")) as server:
        assert status(server.address.removeprefix("http://")) == 0
    assert status(f"127.0.0.1:{free_ports(1)[0]}/") == 1


def test_prometheus_reads_the_server():
    [settings] = SERVICES["prometheus"]["volumes"]
    text = (FOLDER / settings["source"]).read_text(encoding="utf-8")
    [job] = yaml.safe_load(text)["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"serve:{PORT}"]}]

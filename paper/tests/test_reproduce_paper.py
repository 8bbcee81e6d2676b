import dataclasses
import html.parser
import importlib
import json
import os
import re
import xml.etree.ElementTree as ET

import pytest
from helpers.forks import Forked
from helpers.logs import log  # noqa: F401
from helpers.paper_plans import fill, note, prepare, settings_in, write_glue, write_weights

import reproduce_paper
from bert.commands.checks import start
from bert.files import owned
from paper import reproduction
from paper.estimates import measure_machine
from paper.plan import KEYS
from paper.recipe import LADDER
from paper.running import Failure


def table_of(results, key):
    [outcome] = [each for each in results.outcomes if each.table.key == key]
    return outcome


class Page(html.parser.HTMLParser):
    """The rows of the tables of a page, and its tags."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.tags, self.words = [], set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, text):
        self.words += text
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += text


def in_a_fork(command, log, num_threads):
    return Forked([f"{command[0]}.py", *command[1:]], log.name, log.name)


def test_what_is_missing_is_run_from_the_text_on_and_told_beside_the_paper(tmp_path):
    name = "word_vectors/CoNLL/12345"
    fill(tmp_path, missing=[name])
    order = settings_in(tmp_path, only="table7")
    ended = reproduction.reproduce(order, in_a_fork)
    # Of all models, the one that the missing score needs, which is the least of them.
    assert [each for each, _ in ended.missing] == ["word_vectors", name]
    assert ended.failures == ()
    ledger = json.loads((tmp_path / "out/ledger.json").read_text())
    [scored] = [each for each in ledger["runs"].values() if each["name"] == name]
    [folder] = tmp_path.glob("out/runs/word_vectors-CoNLL-12345-*")
    files = [folder / "eval_results.json", folder / "test_results.json"]
    stored = [json.loads(file.read_text())["f1"] for file in files]
    assert [scored["scores"]["f1"], scored["scores"]["test_f1"]] == stored
    page = Page(read(tmp_path, "paper.html"))
    row = next(row for row in page.rows if row[0] == "word vectors")
    assert row[1:3] == [f"{100 * score:.1f}" for score in stored]
    again = reproduction.reproduce(order, in_a_fork)
    assert again.missing == ()
    assert table_of(again.results, "table7").done == (18, 18)


def test_given_weights_are_read_where_they_are_and_marked(tmp_path):
    class Failed:
        def poll(self):
            return 1

    def start(command, log, num_threads):
        commands.append(command)
        return Failed()

    commands = []
    path = write_weights(tmp_path / "model")
    settings = settings_in(tmp_path, only="table7", weights=path)
    reproduction.reproduce(settings, start)
    assert [command[0] for command in commands] == ["run_ner"] * 7
    assert all(f"--init_checkpoint={path}" in command for command in commands)
    assert "begin with weights that are given, L=6 H=384 A=12" in read(tmp_path, "paper.md")


def test_every_command_has_flags_of_its_script(tmp_path):
    jobs = prepare(tmp_path).plan.jobs.values()
    for script in sorted({job.script for job in jobs}):
        fields = dataclasses.fields(importlib.import_module(script).Settings)
        known = {field.name for field in fields}
        known |= {f"no{field.name}" for field in fields if field.type in (bool, bool | None)}
        given = {flag for job in jobs if job.script == script for flag in job.flags}
        assert {flag.lstrip("-").partition("=")[0] for flag in given} <= known, script


def read(folder, name):
    return (folder / "out" / name).read_text(encoding="utf-8")


def paper_scores(prepared):
    """Scores by job that are the paper's own numbers, or any where it has none."""
    found = {}
    for table in prepared.plan.tables:
        for row in table.rows:
            for cell, theirs in zip(row.cells, row.theirs, strict=True):
                for job in cell.jobs:
                    if theirs is not None:
                        found.setdefault(job, {}).setdefault(cell.score, theirs / cell.scale)
    return found


def have_two_seeds(tmp_path):
    """Returns what is prepared with two seeds, as on larger budgets."""
    prepared = prepare(tmp_path)
    recipes = prepared.ledger.recipes
    recipes.update({name: {**recipe, "seeds": 2} for name, recipe in recipes.items()})
    (tmp_path / "out").mkdir()
    prepared.ledger.save()
    return prepare(tmp_path)


def test_what_is_said_of_a_table_does_not_depend_on_the_others_asked_for(tmp_path):
    have_two_seeds(tmp_path)
    fill(tmp_path)
    for outcome in reproduce_paper.run(settings_in(tmp_path, plan=True)).results.outcomes:
        key = outcome.table.key
        alone = reproduce_paper.run(settings_in(tmp_path, only=key, plan=True)).results
        assert table_of(alone, key).total == outcome.total


# The sample has no task of table 1.
@pytest.mark.parametrize("key", KEYS[1:])
def test_the_papers_own_scores_agree_with_the_paper(tmp_path, key):
    prepared = have_two_seeds(tmp_path)
    scores = {}
    for table in prepared.plan.tables:
        if table.key == key:
            part = dataclasses.replace(prepared.plan, tables=[table])
            scores = paper_scores(dataclasses.replace(prepared, plan=part))
    # A little noise.
    for name, found in scores.items():
        found.update({each: found[each] + 1e-4 * name.endswith("6") for each in found})
    note(prepared, scores.get)
    prepared.ledger.save()
    ended = reproduce_paper.run(settings_in(tmp_path, only=key, plan=True))
    total = table_of(ended.results, key).total
    assert total.contrary == 0 and total.pairs > 0
    # Of the sample, the paper's table 6 has perplexities alone.
    assert total.verdict == ("not known" if key == "table6" else "agrees")


def test_the_report_has_every_score_beside_the_papers(tmp_path):
    prepared = fill(tmp_path)
    ended = reproduce_paper.run(settings_in(tmp_path))
    assert ended.missing == ()
    page, text = Page(read(tmp_path, "paper.html")), read(tmp_path, "paper.md")
    for outcome in ended.results.outcomes:
        for row, scores in zip(outcome.table.rows, outcome.scores, strict=True):
            assert all(str(score) in text and str(score) in page.words for score in scores)
            assert row.title in text and row.title in page.words
    assert all(outcome.done[0] == outcome.done[1] for outcome in ended.results.outcomes)
    for name, job in prepared.plan.jobs.items():
        if name.endswith("12345"):
            assert job.shown() in text and job.shown() in page.words
    assert "script" not in page.tags
    assert [text.count(f"## {each}") for each in ("Table 1:", "Table 8:", "Figure 5:")] == [1, 1, 1]


def test_what_is_written_can_be_copied_elsewhere(tmp_path):
    fill(tmp_path)
    reproduce_paper.run(settings_in(tmp_path))
    text = read(tmp_path, "paper.md")
    for key in KEYS:
        assert f"](figures/{key}.svg)" in text
        svg = ET.fromstring(read(tmp_path, f"figures/{key}.svg"))
        assert svg.tag.endswith("svg")
        assert len(read(tmp_path, f"figures/{key}.svg")) < 30_000
    assert str(tmp_path) not in text + read(tmp_path, "paper.html") + read(tmp_path, "ledger.json")
    assert "1 epoch of" in text and "4 epochs on frozen models" in text
    links = re.findall(r"\]\(#([^)]+)\)", text)
    heads = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
    assert len(links) == len(KEYS) and set(links) <= anchors


def test_a_figure_shows_every_score_where_it_belongs(tmp_path):
    fill(tmp_path)
    ended = reproduce_paper.run(settings_in(tmp_path, only="table8"))
    outcome = table_of(ended.results, "table8")
    svg = ET.fromstring(read(tmp_path, "figures/table8.svg"))
    dots = [each for each in svg.iter() if each.tag.endswith("circle")]
    filled = [each for each in dots if each.get("fill") != "none"]
    assert (len(filled), len(dots)) == (18, 36)
    for place in range(3):
        ours = sorted(filled[place * 6 : place * 6 + 6], key=lambda each: float(each.get("cy")))
        values = [row[place].mean for row in outcome.scores]
        across = [float(each.get("cx")) for each in ours]
        assert [across.index(x) for x in sorted(across)] == [
            values.index(value) for value in sorted(values)
        ]


def test_gaps_are_said_and_hostile_words_are_words(tmp_path):
    fill(tmp_path, missing=["base/remarks/12345"])
    order = settings_in(tmp_path, only="table5,table6")
    prepared = reproduction.prepare(order)
    hostile = "<script>alert(1)</script> %TITLE% | <!-- BODY -->"
    (tmp_path / "out").mkdir(exist_ok=True)
    reproduction._write_report(order, prepared, [Failure("base/remarks/12345", hostile)])
    page = Page(read(tmp_path, "paper.html"))
    assert hostile in page.words and "script" not in page.tags
    row = next(each for each in page.rows if each[0] == "masked and next sentence")
    assert row[1] == "not run yet"
    assert "not run yet" in read(tmp_path, "paper.md")
    assert "1 of 8 scores are not run yet" in page.words


def test_the_plan_is_told_run_by_run_with_its_sum_and_nothing_is_written(tmp_path, log):
    ended = reproduce_paper.run(settings_in(tmp_path, plan=True))
    assert not (tmp_path / "out").exists()
    told = "\n".join(log.messages)
    for name, seconds in ended.missing:
        assert seconds > 0
        assert re.search(rf"min  {re.escape(name)}$", told, flags=re.MULTILINE)
    total = sum(seconds for _, seconds in ended.missing)
    sums = re.search(rf"{len(ended.missing)} runs, about ([\d.]+) min", told)
    assert float(sums[1]) == pytest.approx(total / 60, rel=0.05)
    assert "The smallest plan takes about" in told and "more than --budget=1s" in told


def test_a_budget_keeps_the_recipe_that_it_chose_first(tmp_path):
    prepared = fill(tmp_path)
    assert prepared.plan.recipe == LADDER[0]
    # So little text has no large vocabulary on any rung.
    large = dataclasses.replace(LADDER[4], vocab_size=1000)
    ledger = json.loads(read(tmp_path, "ledger.json"))
    [key] = ledger["recipes"]
    ledger["recipes"][key] = LADDER[4].to_dict()
    (tmp_path / "out/ledger.json").write_text(json.dumps(ledger))
    assert prepare(tmp_path).plan.recipe == large
    assert prepare(tmp_path, budget="2s").plan.recipe == LADDER[0]
    assert prepare(tmp_path, budget="9999999h").plan.recipe.steps == LADDER[-1].steps


def test_a_recipe_is_of_a_budget_and_its_data(tmp_path):
    fill(tmp_path)
    path = tmp_path / "out/ledger.json"
    ledger = json.loads(path.read_text())
    ledger["recipes"] = dict.fromkeys(ledger["recipes"], LADDER[4].to_dict())
    path.write_text(json.dumps(ledger))
    write_glue(tmp_path / "glue")
    assert prepare(tmp_path, glue_dir=str(tmp_path / "glue")).plan.recipe.steps == LADDER[0].steps
    assert prepare(tmp_path).plan.recipe.steps == LADDER[4].steps


def test_what_takes_more_than_its_budget_is_told_of_a_recipe_of_another_ledger_too(tmp_path, log):
    prepared = fill(tmp_path)
    other = tmp_path / "other.json"
    recipes = dict.fromkeys(prepared.ledger.recipes, LADDER[4].to_dict())
    other.write_text(json.dumps({"recipes": recipes, "runs": {}}))
    log.clear()
    prepare(tmp_path, output_dir=str(tmp_path / "new"), ledger=str(other))
    told = "\n".join(log.messages)
    assert f"are those that {other} has" in told
    assert re.search(
        r"What is left of the plan takes about [\d h]+ min, more than --budget=1s", told
    )
    log.clear()
    prepare(tmp_path)
    assert not log.messages


@pytest.mark.parametrize("damaged", [5, [], {"steps": 5}, {"steps": [1]}, {"hidden": "128"}])
def test_a_damaged_recipe_is_refused_as_one_of_another_version(tmp_path, damaged):
    prepared = fill(tmp_path)
    recipe = {**LADDER[4].to_dict(), **damaged} if isinstance(damaged, dict) else damaged
    prepared.ledger.recipes = dict.fromkeys(prepared.ledger.recipes, recipe)
    prepared.ledger.save()
    with pytest.raises(ValueError, match="another version wrote it, or it is damaged"):
        prepare(tmp_path)


def test_a_folder_in_which_an_orphan_trains_is_refused_at_the_start(tmp_path):
    prepared = fill(tmp_path, missing=["word_vectors/CoNLL/12345"])
    folder = prepared.runner._folders["word_vectors/CoNLL/12345"]
    settings = settings_in(tmp_path, only="table7")
    os.makedirs(folder)
    owner = rf"word_vectors-CoNLL.*process {os.getpid()} on .* does"
    with owned.lock(folder), pytest.raises(ValueError, match=owner):
        reproduce_paper.run(settings)
    assert not (tmp_path / "out/paper.md").exists()


def test_a_ledger_from_elsewhere_spares_its_runs(tmp_path):
    fill(tmp_path)
    other = str(tmp_path / "out/ledger.json")
    given = {"output_dir": str(tmp_path / "new"), "plan": True}
    alone = reproduce_paper.run(settings_in(tmp_path, **given))
    spared = reproduce_paper.run(settings_in(tmp_path, ledger=other, **given))
    assert len(alone.missing) > 70
    assert spared.missing == ()
    assert table_of(spared.results, "table7").done == (18, 18)


@pytest.mark.parametrize("used", ["float32", "mixed_bfloat16"])
def test_a_ledger_from_another_processor_is_gone_on_with_in_its_precision(tmp_path, log, used):
    fill(tmp_path, missing=["base/remarks/12345"], precision=used)
    given = {"output_dir": str(tmp_path / "new"), "ledger": str(tmp_path / "out/ledger.json")}
    prepared = prepare(tmp_path, precision=None, **given)
    jobs = prepared.plan.jobs
    assert f"--precision={used}" in jobs["base"].flags
    assert prepared.missing[-1].name == "base/remarks/12345" and len(prepared.missing) < 8
    usual = measure_machine(None).precision
    assert any("as in the ledger" in each for each in log.messages) == (usual != used)
    # What is asked for is taken.
    (other,) = {"float32", "mixed_bfloat16"} - {used}
    assert len(prepare(tmp_path, precision=other, **given).missing) > 70


def test_parts_are_chosen_and_others_refused(tmp_path):
    ended = reproduce_paper.run(settings_in(tmp_path, only="figure5, table6", plan=True))
    assert [each.table.key for each in ended.results.outcomes] == ["table6", "figure5"]
    assert not any("masks" in name for name, _ in ended.missing)
    with pytest.raises(ValueError, match=r"`--only` must name parts among table1.*'table2'"):
        reproduce_paper.run(settings_in(tmp_path, only="table1,table2"))


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_that_scripts_refuse_are_refused_before_anything_runs(seed):
    field = next(f for f in dataclasses.fields(reproduce_paper.Settings) if f.name == "seed")
    bounds = field.metadata["options"]
    assert not bounds["lower_bound"] <= seed <= bounds["upper_bound"]


def test_a_script_with_failures_ends_with_their_names(tmp_path):
    error = reproduction.RunsFailedError([Failure(f"run {n}", "") for n in range(5)])
    assert "5 runs failed: run 0, run 1, run 2 and 2 others" in str(error)


@pytest.mark.parametrize(
    "wrong", [{"budget": "soon"}, {"glue_dir": "nowhere"}, {"only": "table9"}, {"ledger": "none"}]
)
def test_check_tells_what_a_run_refuses_and_writes_nothing(tmp_path, capsys, wrong):
    start(settings_in(tmp_path, check=True), reproduce_paper.run, reproduce_paper.check)
    assert re.search(r"plan +\d+ runs, about", capsys.readouterr().out)
    with pytest.raises(SystemExit):
        start(
            settings_in(tmp_path, check=True, **wrong), reproduce_paper.run, reproduce_paper.check
        )
    [name] = wrong
    assert f"--{name}`" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_files_of_others_in_the_folder_are_set_aside(tmp_path):
    fill(tmp_path)
    (tmp_path / "out/paper.md").write_text("my own paper")
    reproduce_paper.run(settings_in(tmp_path))
    assert read(tmp_path, "paper.md.kept-1") == "my own paper"

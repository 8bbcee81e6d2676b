import dataclasses
import json
import re

import pytest
from helpers.paper_plans import write_weights

from paper import inputs
from paper.jobs import Job, digest_all, folder_of
from paper.plan import KEYS, make_plan, read_sources
from paper.recipe import LADDER, LONG, SHORT, Recipe, Size

SAMPLE = dict.fromkeys(("text_dir", "glue_dir", "conll_dir", "squad_dir"))
RECIPE = LADDER[0]


def write_glue(folder, name, head, lines):
    (folder / name).mkdir(parents=True)
    for split, count in (("train", 10), ("dev", 4)):
        text = head + "".join(lines.format(number) for number in range(count))
        (folder / name / f"{split}.tsv").write_text(text)


@pytest.fixture
def folders(tmp_path):
    """Data as that of the paper lies in folders, very little of it."""
    write_glue(tmp_path / "glue", "CoLA", "", "x\t1\t\tSentence {}.\n")
    write_glue(tmp_path / "glue", "SST-2", "sentence\tlabel\n", "sentence {}\t1\n")
    write_glue(tmp_path / "glue", "MRPC", "Quality\t#1 ID\n", "1\t{}\n")
    (tmp_path / "conll").mkdir()
    for split in ("train", "dev", "test"):
        sentences = "".join(f"Word{n} NN O O\nhere RB O O\n\n" for n in range(6))
        text = f"-DOCSTART- -X- -X- O\n\n{sentences}"
        (tmp_path / "conll" / f"{split}.txt").write_text(text)
    (tmp_path / "squad").mkdir()
    for split in ("train", "dev"):
        paragraphs = [
            {"context": f"c{p}", "qas": [{"id": f"{p}{q}"} for q in range(3)]} for p in range(4)
        ]
        values = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
        (tmp_path / "squad" / f"{split}-v1.1.json").write_text(json.dumps(values))
        (tmp_path / "squad" / f"{split}-v2.0.json").write_text("{}")
    (tmp_path / "text").mkdir()
    for number in range(5):
        (tmp_path / "text" / f"{number}.txt").write_text(f"Book {number}. " * 50)
    names = {"text_dir": "text", "glue_dir": "glue", "conll_dir": "conll", "squad_dir": "squad"}
    return {name: str(tmp_path / folder) for name, folder in names.items()}


def plan_of(folders=SAMPLE, recipe=RECIPE, precision="float32", seed=1):
    return make_plan(recipe, read_sources(recipe, **folders), precision, seed)


def flags_of(plan, name):
    return dict(flag.lstrip("-").partition("=")[::2] for flag in plan.jobs[name].flags)


def changed(one, other):
    return {name for name in one.digests if one.digests[name] != other.digests.get(name)}


def test_all_of_the_papers_tables_are_planned_with_their_rows(folders):
    plan = plan_of(folders)
    assert tuple(table.key for table in plan.tables) == KEYS
    rows = {table.key: [row.paper for row in table.rows] for table in plan.tables}
    assert rows["table1"] == ["OpenAI GPT", "BERT Base", "BERT Large"]
    assert rows["table5"] == ["BERT Base", "No NSP", "LTR & No NSP", "+ BiLSTM"]
    assert len(rows["table6"]) == 5
    assert [len(rows["table7"]), len(rows["table8"]), len(rows["figure5"])] == [9, 6, 2]
    first = plan.tables[0]
    assert [column.title for column in first.columns] == [
        *("SST-2 accuracy", "CoLA Matthews", "MRPC F1")
    ]
    assert first.rows[1].theirs == (93.5, 52.1, 88.9)


def test_every_cell_has_its_job_and_every_job_stands_behind_what_it_needs():
    plan = plan_of()
    seen = set(plan.parts)
    for name, job in plan.jobs.items():
        assert set(job.needs) <= seen, name
        seen.add(name)
    names = {name for table in plan.tables for name in table.jobs}
    assert names <= plan.jobs.keys()
    assert all(plan.jobs[name].has_scores for name in names)
    assert len(set(plan.digests.values())) == len(plan.jobs)


def test_what_is_compared_has_the_same_steps_tokens_and_seeds():
    plan = plan_of(recipe=LADDER[7])
    phases = [job for job in plan.jobs.values() if job.kind == "pretraining"]
    repeated = [job for job in phases if "/again" in job.name]
    assert (len(phases), len(repeated)) == (2 * 25, 2 * 12)
    assert {job.seed for job in repeated} == {2}
    phases = [job for job in phases if job not in repeated]
    names = ("train_batch_size", "num_train_steps", "learning_rate", "num_warmup_steps", "seed")
    for is_last in (False, True):
        found = [flags_of(plan, job.name) for job in phases if job.has_scores == is_last]
        for flag in names:
            assert len({flags[flag] for flags in found}) == 1, flag
        length = LONG if is_last else SHORT
        tokens = int(found[0]["train_batch_size"]) * length
        assert tokens == LADDER[7].tokens


def test_a_repeated_pretraining_differs_by_its_seed_and_is_fine_tuned_with_that():
    plan = plan_of(recipe=LADDER[7])
    others = {"output_dir", "init_checkpoint", "seed", "save_checkpoints_steps"}
    for name in ("base", "left_to_right", "masked_lm"):
        for phase in ("", "/short"):
            one, again = (flags_of(plan, f"{each}{phase}") for each in (name, f"{name}/again"))
            differing = {flag for flag in one if one[flag] != again[flag]}
            assert {"seed"} <= differing <= {*others, "keep_checkpoint_max"}
            assert (one["seed"], again["seed"]) == ("1", "2")
        assert flags_of(plan, f"{name}/again")["init_checkpoint"] == f"<{name}/again/short>"
    [table] = [table for table in plan.tables if table.key == "table5"]
    assert [row.cells[-1].jobs for row in table.rows] == [
        ("base/SQuAD/1", "base/again/SQuAD/2"),
        ("masked_lm/SQuAD/1", "masked_lm/again/SQuAD/2"),
        ("left_to_right/SQuAD/1", "left_to_right/again/SQuAD/2"),
        ("left_to_right/bilstm/SQuAD/1", "left_to_right/again/bilstm/SQuAD/2"),
    ]
    [table] = [table for table in plan.tables if table.key == "table8"]
    frozen = "features-concat_last_four/CoNLL"
    assert [row.cells[-1].jobs for row in table.rows[:2]] == [
        (f"base/{frozen}/1", f"base/again/{frozen}/2"),
        (f"masks-100-0-0/{frozen}/1", f"masks-100-0-0/again/{frozen}/2"),
    ]
    assert all(cell.is_whole for row in table.rows for cell in row.cells)
    flags = flags_of(plan, "left_to_right/again/bilstm/SQuAD/2")
    assert (flags["init_checkpoint"], flags["seed"]) == ("<left_to_right/again>", "2")
    # Where a score is of one seed, nothing is pre-trained twice.
    assert not any("again" in name for name in plan_of().jobs)


@pytest.mark.parametrize(("rung", "warmups"), [(1, [300, 60]), (4, [400, 300]), (6, [800, 1200])])
def test_a_warm_up_is_long_enough_where_there_are_steps_for_it(rung, warmups):
    plan = plan_of(recipe=LADDER[rung])
    names = ("base/short", "base")
    assert [int(flags_of(plan, name)["num_warmup_steps"]) for name in names] == warmups


@pytest.mark.parametrize(("hidden", "expected"), [(768, 0.02), (192, 0.04)])
def test_initial_weights_stand_to_the_width_as_those_of_bert_base(hidden, expected):
    part = inputs.config_part(Size(1, hidden, 1), 1000)
    config = json.loads(part.contents["bert_config.json"])
    assert config["initializer_range"] == pytest.approx(expected)


def test_a_bilstm_on_frozen_vectors_learns_longer_than_a_model_is_fine_tuned():
    plan = plan_of(recipe=LADDER[8])
    epochs = {
        name: float(flags_of(plan, f"{name}/CoNLL/1")["num_train_epochs"])
        for name in ("base", "base/features-last", "word_vectors", "left_to_right@3000")
    }
    assert epochs == {
        "base": 3.0,
        "base/features-last": 12.0,
        "word_vectors": 12.0,
        "left_to_right@3000": 3.0,
    }


def test_little_text_is_masked_ten_times_at_most():
    jobs = plan_of(recipe=LADDER[-1]).jobs.values()
    found = {flag for job in jobs for flag in job.flags if flag.startswith("--dupe_factor")}
    assert found == {"--dupe_factor=1", "--dupe_factor=10"}


def test_rows_differ_in_what_they_are_about():
    plan = plan_of()
    assert "objective" not in flags_of(plan, "base")
    assert flags_of(plan, "left_to_right")["objective"] == "left_to_right"
    assert flags_of(plan, "masked_lm/short")["objective"] == "masked_lm"
    masks = {flags_of(plan, name).get("mask_ratios") for name in plan.jobs}
    assert masks == {None, "100,0,0", "80,0,20", "80,20,0", "0,20,80", "0,0,100"}
    on_top = flags_of(plan, "left_to_right/bilstm/SQuAD/1")
    assert "add_bilstm" in on_top and on_top["init_checkpoint"] == "<left_to_right>"
    layers = {flags_of(plan, name).get("feature_layers") for name in plan.jobs}
    assert layers >= {"embeddings", "second_to_last", "last", "sum_last_four", "weighted"}
    vectors = flags_of(plan, "word_vectors/CoNLL/1")
    assert vectors["word_vectors"] == "<word_vectors>/vectors.txt"
    assert "init_checkpoint" not in vectors


def test_little_text_has_a_small_vocabulary():
    plan = plan_of(recipe=LADDER[7])
    assert flags_of(plan, "vocabulary")["vocab_size"] == "1000"
    config = json.loads(plan.parts["data:L4_H256_A4"].contents["bert_config.json"])
    assert config["vocab_size"] == 1000


def test_figure_5_begins_with_checkpoints_that_the_pre_training_keeps():
    recipe = LADDER[7]
    plan = plan_of(recipe=recipe)
    assert (recipe.steps, recipe.points) == ((5000, 5000), 2)
    for phase in ("base/short", "base"):
        flags = flags_of(plan, phase)
        assert (flags["save_checkpoints_steps"], flags["keep_checkpoint_max"]) == ("2500", "0")
    assert plan.tables[-1].steps == (2500, 5000, 7500, 10_000) * 2
    sources = [
        flags_of(plan, f"left_to_right{at}/CoNLL/1")["init_checkpoint"]
        for at in ("@2500", "@5000", "@7500", "")
    ]
    assert sources == [
        *("<left_to_right/short>/model.ckpt-2500", "<left_to_right/short>/model.ckpt-5000"),
        *("<left_to_right>/model.ckpt-2500", "<left_to_right>"),
    ]


def test_a_digest_is_of_the_command_and_all_that_goes_into_it(folders, tmp_path):
    plan = plan_of(folders)
    assert changed(plan, plan_of(folders)) == set()
    every = {name for name, job in plan.jobs.items() if job.seed}
    assert every <= changed(plan, plan_of(folders, seed=2))
    (tmp_path / "conll" / "dev.txt").write_text("Other NN O O\n\n")
    after = changed(plan, plan_of(folders))
    assert after == {name for name in plan.jobs if "/CoNLL/" in name}
    (tmp_path / "text" / "0.txt").write_text("Another book.")
    assert changed(plan, plan_of(folders)) >= {"text", "base", "base/CoLA/1", "word_vectors"}


def test_a_digest_knows_no_places(folders, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    for name, folder in folders.items():
        (tmp_path / folder.rsplit("/", 1)[1]).rename(moved / name)
    other = {name: str(moved / name) for name in folders}
    (moved / "glue_dir").rename(tmp_path / "glue")
    one = plan_of({**other, "glue_dir": folders["glue_dir"]})
    (tmp_path / "glue").rename(moved / "glue_dir")
    assert changed(one, plan_of(other)) == set()
    text = " ".join(job.shown() for job in one.jobs.values())
    assert str(tmp_path) not in text and "<" not in text


def test_where_checkpoints_are_kept_is_no_part_of_a_digest():
    job = Job("a", "ner", "run_ner", ("--x=<data:y>", "--keep_checkpoint_max=1"), 1.0, "made")
    other = dataclasses.replace(job, flags=("--x=<data:y>", "--keep_checkpoint_max=0"))
    third = dataclasses.replace(job, flags=("--x=<data:y>/z", "--keep_checkpoint_max=1"))
    digests = [digest_all({"a": each}, {"data:y": "1"})["a"] for each in (job, other, third)]
    assert digests[0] == digests[1] != digests[2]
    assert digest_all({"a": job}, {"data:y": "2"})["a"] != digests[0]
    assert folder_of(job, digests[0], "out") == f"out/runs/a-{digests[0][:8]}"


def test_a_command_has_places_for_a_process_and_short_names_for_a_reader():
    job = Job("a/b", "ner", "run_ner", ("--x=<base/short>/m", "--output_dir=<>"), 1.0, "made")
    assert job.needs == ("base/short",)
    assert job.command({"base/short": "/1"}, "/2") == ["run_ner", "--x=/1/m", "--output_dir=/2"]
    assert job.shown() == "python run_ner.py --x=runs/base-short/m --output_dir=runs/a-b"


def test_data_is_cut_at_even_distances_and_keeps_its_form(folders, tmp_path):
    recipe = dataclasses.replace(RECIPE, examples=5, glue_examples=4, held_out=2)
    sources = read_sources(recipe, **folders)
    lines = sources.glue["SST-2"].contents["train.tsv"].decode().splitlines()
    assert lines == ["sentence\tlabel", *(f"sentence {n}\t1" for n in (0, 2, 5, 7))]
    lines = sources.glue["CoLA"].contents["dev.tsv"].decode().splitlines()
    assert lines == ["x\t1\t\tSentence 0.", "x\t1\t\tSentence 2."]
    assert sources.glue["CoLA"].found == {"train": 10, "dev": 4}
    text = sources.conll.contents["test.txt"].decode()
    assert re.findall(r"Word\d", text) == ["Word0", "Word3"]
    assert text.count("\n\n") == 2 and "DOCSTART" not in text
    # Of questions, five times as many.
    squad = read_sources(dataclasses.replace(recipe, examples=1), **folders).squad
    values = json.loads(squad.contents["train.json"])
    kept = [q["id"] for p in values["data"][0]["paragraphs"] for q in p["qas"]]
    assert kept == ["00", "02", "11", "21", "30"]


@pytest.mark.parametrize("gap", ["\n", "\r\n", " \n", "\t \n\n"])
@pytest.mark.parametrize("behind", ["", "\n"])
def test_sentences_are_divided_by_what_taggers_divide_them_by(folders, tmp_path, gap, behind):
    document = f"-DOCSTART- -X- O O\n{behind}"
    text = f"{document}A NN O O\nb NN O O\n{gap}C NN O O\n{gap}{document}D NN O O\n"
    (tmp_path / "conll" / "train.txt").write_text(text, newline="")
    conll = read_sources(RECIPE, **folders).conll
    expected = "A NN O O\nb NN O O\n\nC NN O O\n\nD NN O O\n\n"
    assert conll.contents["train.txt"].decode() == expected


def test_a_file_in_the_middle_is_held_out_and_the_text_is_cut(folders):
    sources = read_sources(dataclasses.replace(RECIPE, text_bytes=10**9), **folders)
    assert list(sources.corpus.held_out.contents) == ["2.txt"]
    assert list(sources.corpus.text.contents) == ["0.txt", "1.txt", "3.txt", "4.txt"]
    sources = read_sources(dataclasses.replace(RECIPE, text_bytes=900), **folders)
    assert list(sources.corpus.text.contents) == ["0.txt", "3.txt"]


def test_parts_are_written_once_and_nothing_of_others_is_replaced(tmp_path):
    part = inputs.Part("data:x", {"a.txt": b"text", "b.txt": str(tmp_path / "source")})
    (tmp_path / "source").write_text("copied")
    part.write(str(tmp_path), "data/x")
    assert (tmp_path / "data/x/a.txt").read_text() == "text"
    assert (tmp_path / "data/x/b.txt").read_text() == "copied"
    (tmp_path / "source").unlink()
    part.write(str(tmp_path), "data/x")


def test_given_weights_are_what_table_7_is_about_and_a_row_of_table_1(folders, tmp_path):
    before = plan_of(folders)
    given = {**folders, "weights": write_weights(tmp_path / "model")}
    plan = plan_of(given)
    tables = {table.key: table for table in plan.tables}
    assert {row.title.partition(",")[0] for row in tables["table7"].rows} == {"given weights"}
    assert len(tables["table7"].rows) == 7
    row = tables["table1"].rows[-1]
    assert row.title == "given weights, L=6 H=384 A=12"
    assert [*tables["table1"].rows[:-1]] == [*before.tables[0].rows] and not any(row.theirs)
    # Nothing is pre-trained for it, and all other rows stay the runs that they were.
    assert {name.split("/")[0] for name in plan.wanted(["table7"])} == {"weights"}
    left_out = before.jobs.keys() - plan.jobs.keys()
    assert changed(before, plan) == left_out and all("/CoNLL/" in name for name in left_out)
    tuned, frozen = (flags_of(plan, f"weights{use}/CoNLL/1") for use in ("", "/features-last"))
    assert [flags["learning_rate"] for flags in (tuned, frozen)] == ["5e-5", "1e-3"]
    assert flags_of(plan, "weights/CoLA/1")["learning_rate"] == "5e-5"
    assert sum("learning_rate" in flag for flag in plan.jobs["weights/CoLA/1"].flags) == 1
    assert tuned["init_checkpoint"] == frozen["init_checkpoint"] == "<data:weights>"
    # They are read where they are.
    part = plan.parts["data:weights"]
    part.write(str(tmp_path / "out"), "data/weights")
    assert part.folder == given["weights"] and not (tmp_path / "out").exists()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"others")
    assert changed(plan, plan_of(given)) == {name for name in plan.jobs if "weights" in name}


@pytest.mark.parametrize(
    ("lost", "config", "message"),
    [
        ("model.safetensors", {}, "a folder with weights.*no weights, such as"),
        ("config.json", {}, "a folder with weights.*no bert_config.json or config.json"),
        ("vocab.txt", {}, "a folder with weights.*no vocab.txt or tokenizer.json"),
        ("", {"num_hidden_layers": 2}, "of a BERT with num_hidden_layers of at least 4.*has 2"),
        ("", {"hidden_size": "x"}, "of a BERT with hidden_size of at least 1.*has 'x'"),
        ("", {"max_position_embeddings": 64}, "of .*_position_embeddings of at least 128.*has 64"),
    ],
)
def test_weights_that_no_table_can_be_about_are_refused(folders, tmp_path, lost, config, message):
    path = write_weights(tmp_path / "model", **config)
    if lost:
        (tmp_path / "model" / lost).unlink()
    with pytest.raises(ValueError, match=f"`--weights` must be {message}") as refused:
        plan_of({**folders, "weights": path})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text_dir", "at least two .txt files, one of which is held out.*which has 0"),
        ("glue_dir", "one of CoLA, MRPC, RTE, SST-2, STS-B.*which has none"),
        ("conll_dir", r"train.txt, dev.txt, test.txt.*no 'train.txt'"),
        ("squad_dir", r"SQuAD 1.1.*which has no train\*.json"),
    ],
)
def test_a_folder_without_what_it_must_have_is_refused_by_its_flag(tmp_path, name, message):
    with pytest.raises(ValueError, match=f"`--{name}` must be a folder with .*{message}"):
        read_sources(RECIPE, **{**SAMPLE, name: str(tmp_path)})


@pytest.mark.parametrize(
    ("flag", "file", "empty"),
    [
        ("text_dir", "text/3.txt", ""),
        ("glue_dir", "glue/SST-2/train.tsv", ""),
        ("glue_dir", "glue/MRPC/dev.tsv", "Quality\t#1 ID\n"),
        ("conll_dir", "conll/test.txt", "-DOCSTART- -X- -X- O\n\n"),
        ("squad_dir", "squad/dev-v1.1.json", '{"data": []}'),
    ],
)
def test_a_file_without_anything_to_learn_or_score_is_refused_by_name(
    folders, tmp_path, flag, file, empty
):
    (tmp_path / file).write_text(empty)
    with pytest.raises(ValueError, match=f"`--{flag}` must be a folder .*{file}' has none"):
        read_sources(RECIPE, **folders)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    for name in SAMPLE:
        with pytest.raises(ValueError, match=f"`--{name}` must be a folder"):
            read_sources(RECIPE, **{**SAMPLE, name: str(tmp_path / "nowhere")})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"data": [{"paragraphs": [{}]}]}', "It has no 'qas'"),
        ("[]", "It has no list or object where"),
        ('{"data": 5}', "It has no list or object where"),
    ],
)
def test_a_file_of_questions_that_is_none_is_refused(folders, tmp_path, text, said):
    (tmp_path / "squad" / "dev-v1.1.json").write_text(text)
    with pytest.raises(ValueError, match=rf"dev-v1.1.json' must hold questions.*{said}"):
        read_sources(RECIPE, **folders)


def test_a_recipe_is_kept_whole_and_one_of_another_version_is_refused():
    for recipe in LADDER:
        assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    with pytest.raises(ValueError, match="another version wrote it"):
        Recipe.from_dict({"hidden": 32})


def test_without_samples_data_must_be_given(tmp_path, monkeypatch, folders):
    # As where the project is installed.
    monkeypatch.setattr(inputs, "ROOT", tmp_path / "site-packages")
    for flag in SAMPLE:
        with pytest.raises(ValueError, match=f"`--{flag}` must be given"):
            read_sources(RECIPE, **{**folders, flag: None})

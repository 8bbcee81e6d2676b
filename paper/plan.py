"""What is run, and which tables it fills (paper, tables 1 and 5 to 8, figure 5)."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from bert.files import fingerprints
from paper import inputs, published
from paper.finetunings import (
    FROZEN_EPOCHS,
    Model,
    Task,
    conll_task,
    features,
    fine_tune,
    glue_task,
    squad_task,
)
from paper.inputs import Part
from paper.jobs import OWN, Job, digest_all
from paper.pretrainings import (
    MASKS,
    TEXT,
    Corpus,
    Pretraining,
    again,
    points_of,
    prepare,
    pretrain,
)
from paper.recipe import Recipe, Size
from paper.tables import Cell, Column, Row, Table

BASE, LEFT, MASKED, ELMO = "base", "left_to_right", "masked_lm", "bilstm_lm"
# A model that was trained elsewhere, and the rate at which it is fine-tuned: that of a large one.
GIVEN, _GIVEN_RATE = "weights", "5e-5"
KEYS = ("table1", "table5", "table6", "table7", "table8", "figure5")
# Of frozen layers, in the order of the paper's table 7.
_LAYERS = {
    "embeddings": ("embeddings", "Embeddings"),
    "second_to_last": ("second to last layer", "Second-to-last hidden"),
    "last": ("last layer", "Last hidden"),
    "sum_last_four": ("sum of last four layers", "Weighted sum of last four"),
    "concat_last_four": ("last four layers, side by side", "Concatenation of last four"),
    "weighted": ("all layers, weights learned", "Weighted sum of all 12 layers"),
}
# What a word vector has, as those that ELMo and its forerunners stood on.
_VECTOR_SIZE = 100
# Tokens of a text from which no large vocabulary can be learned, such as the sample.
_LITTLE_TEXT = 100_000
# The grid of fine-tuning's learning rates: powers of the square root of ten about the tasks' own.
_RATES = ("3e-5", "1e-4", "3e-4")
_WHOLE = " Each score is the mean of two seeds of pre-training and fine-tuning together."


def _as_it_is(model: Model) -> Model:
    return model


def _with_bilstm(model: Model) -> Model:
    return dataclasses.replace(model, name=f"{model.name}/bilstm", flags=("--add_bilstm",))


def _frozen(model: Model) -> Model:
    return features(model, "concat_last_four")


def _at_best_rate(model: Model) -> Model:
    return dataclasses.replace(model, name=f"{model.name}/best-rate", rate=",".join(_RATES))


@dataclasses.dataclass(frozen=True)
class Sources:
    """The data of a plan.

    Attributes:
      corpus: To pre-train on.
      glue: Tasks of GLUE by name, or the sample's.
      conll: Sentences to tag.
      squad: Questions.
      weights: Files and shape of a model that was trained elsewhere; None without one.
    """

    corpus: Corpus
    glue: Mapping[str, Part]
    conll: Part
    squad: Part
    weights: tuple[Part, Size] | None = None

    @property
    def digest(self) -> str:
        """Of all data in them; a recipe is the same with other weights."""
        parts = [self.corpus.text, self.corpus.held_out, *self.glue.values()]
        digests = [part.digest for part in (*parts, self.conll, self.squad)]
        return fingerprints.of_bytes("\n".join(digests).encode())


def read_sources(
    recipe: Recipe,
    *,
    text_dir: str | None,
    glue_dir: str | None,
    conll_dir: str | None,
    squad_dir: str | None,
    weights: str | None = None,
) -> Sources:
    """Returns the data in some folders, cut to the recipe; without a folder, the sample's.

    Raises:
      ValueError: where a folder does not hold what it must.
    """
    text, held_out = inputs.read_text(text_dir, recipe)
    return Sources(
        Corpus(text, held_out, is_split=text_dir is None),
        inputs.read_glue(glue_dir, recipe),
        inputs.read_conll(conll_dir, recipe),
        inputs.read_squad(squad_dir, recipe),
        inputs.read_weights(weights) if weights else None,
    )


@dataclasses.dataclass(frozen=True)
class Plan:
    """All commands and tables.

    Attributes:
      recipe: How large all of it is.
      jobs: By name, each behind those that it needs, and what hangs on a model right behind it.
      parts: The data, by name.
      tables: What the scores go into.
      digests: By name, those of the jobs.
    """

    recipe: Recipe
    jobs: Mapping[str, Job]
    parts: Mapping[str, Part]
    tables: Sequence[Table]
    digests: Mapping[str, str]

    def wanted(self, keys: Iterable[str]) -> list[str]:
        """Returns the names of the jobs that some tables show, in the order of the jobs."""
        names = {name for table in self.tables if table.key in set(keys) for name in table.jobs}
        return [name for name in self.jobs if name in names]


def make_plan(recipe: Recipe, sources: Sources, precision: str, seed: int) -> Plan:
    """Returns the plan of a recipe for some data."""
    if sources.corpus.tokens < _LITTLE_TEXT:
        recipe = dataclasses.replace(recipe, vocab_size=min(recipe.vocab_size, 1000))
    maker = _Maker(recipe, sources, precision, seed)
    tables = list(maker.tables())
    # A model, and behind it all that begins with it.
    jobs = dict(maker.setup)
    for group in maker.groups.values():
        jobs.update(group)
    sizes = {model.size.name: model.size for model in maker.models.values()}
    parts = [
        *(inputs.config_part(size, recipe.vocab_size) for size in sizes.values()),
        *(sources.corpus.text, sources.corpus.held_out),
        *(*sources.glue.values(), sources.conll, sources.squad),
        *([sources.weights[0]] if sources.weights else []),
    ]
    by_name = {part.name: part for part in parts}
    digests = digest_all(jobs, {name: part.digest for name, part in by_name.items()})
    return Plan(recipe, jobs, by_name, tables, digests)


class _Maker:
    """Makes tables, and notes the jobs that fill them.

    Attributes:
      setup: Jobs that come before all models.
      groups: By model, the jobs that make it and those that begin with it.
      models: By name, those that are pre-trained.
    """

    def __init__(self, recipe: Recipe, sources: Sources, precision: str, seed: int) -> None:
        self.recipe, self.sources = recipe, sources
        self._precision, self._seed = precision, seed
        # What the tables of whole trainings say of them.
        self._seeds = _WHOLE if recipe.seeds > 1 else ""
        size = recipe.base
        others = [each for each in recipe.sizes if each != size]
        models = [
            Pretraining(BASE, size, keeps=True),
            Pretraining(LEFT, size, objective=LEFT, keeps=True),
            Pretraining(MASKED, size, objective=MASKED),
            *(Pretraining(each.name, each) for each in others),
            *(
                Pretraining(f"masks-{masks.replace(',', '-')}", size, masks=masks)
                for masks in published.MASKS
                if masks != MASKS
            ),
            Pretraining(ELMO, size, objective=ELMO),
        ]
        if recipe.seeds > 1:
            models += [model.repeated() for model in models if model.objective != ELMO]
        self.models = {model.name: model for model in models}
        self.setup: dict[str, Job] = {job.name: job for job in prepare(sources.corpus, recipe)}
        self.groups: dict[str, dict[str, Job]] = {
            name: self._note_all(pretrain(model, sources.corpus, recipe, precision, seed))
            for name, model in self.models.items()
        }
        self.groups["word_vectors"] = self._note_all([self._word_vectors()])
        self.groups[GIVEN] = {}

    def _note_all(self, jobs: Iterable[Job]) -> dict[str, Job]:
        return {job.name: job for job in jobs}

    def _word_vectors(self) -> Job:
        corpus = self.sources.corpus
        text = f"<{corpus.text.name}>/*.txt" if corpus.is_split else f"<{TEXT}>/text.txt"
        flags = (
            f"--input_file={text}",
            f"--output_file={OWN}/vectors.txt",
            f"--vector_size={_VECTOR_SIZE}",
            f"--seed={self._seed}",
        )
        return Job(
            "word_vectors",
            "word_vectors",
            "create_word_vectors",
            flags,
            corpus.tokens / 1e4,
            "vectors.txt",
            has_scores=False,
            seed=self._seed,
        )

    def _given(self) -> Model | None:
        """Returns the model that was trained elsewhere, if there is one."""
        if self.sources.weights is None:
            return None
        part, size = self.sources.weights
        return Model(GIVEN, f"<{part.name}>", size, rate=_GIVEN_RATE)

    def _model(self, name: str) -> Model:
        return Model(name, f"<{name}>", self.models[name].size)

    def _cell(
        self, task: Task, model: Model, *, group: str = "", num_seeds: int | None = None
    ) -> Cell:
        """Returns the cell of a task and a model; notes the jobs that fill it."""
        count = self.recipe.seeds if num_seeds is None else num_seeds
        seeds = range(self._seed, self._seed + count)
        jobs = fine_tune(task, model, self.recipe, self._precision, seeds)
        self.groups[group or model.name].update(self._note_all(jobs))
        return Cell(tuple(job.name for job in jobs), task.score, task.scale)

    def _whole_cell(self, task: Task, name: str, use: Callable[[Model], Model] = _as_it_is) -> Cell:
        """Returns the cell of a task and a model whose pre-training is repeated, too.

        Each job of it is of another seed from the initial weights on.
        """
        found: list[Job] = []
        for seed, each in enumerate(self._pretrainings(name), self._seed):
            jobs = fine_tune(task, use(self._model(each)), self.recipe, self._precision, [seed])
            self.groups[each].update(self._note_all(jobs))
            found += jobs
        return Cell(tuple(job.name for job in found), task.score, task.scale, is_whole=True)

    def _pretrainings(self, name: str) -> list[str]:
        """Returns the names of a model's pre-trainings, of one seed each."""
        return [each for each in (name, again(name)) if each in self.models]

    def tables(self) -> Iterator[Table]:
        """Yields all tables, in the paper's order."""
        yield self._glue()
        yield self._objectives()
        yield self._sizes()
        yield self._names()
        yield self._masks()
        yield self._steps()

    def _glue_tasks(self, *names: str, score: str | None = None) -> list[Task]:
        """Returns tasks of GLUE that are there, or the sample's."""
        glue = self.sources.glue
        parts = [glue[name] for name in names if name in glue] or list(glue.values())[:1]
        return [glue_task(part, score) for part in parts]

    def _ablation_tasks(self, mrpc: str = "accuracy") -> list[Task]:
        """Returns the tasks of GLUE that tables 5 and 6 have; the sample's is both."""
        tasks = [*self._glue_tasks("MRPC", score=mrpc), *self._glue_tasks("SST-2")]
        return list({task.name: task for task in tasks}.values())

    def _glue(self) -> Table:
        tasks = self._glue_tasks(*published.GLUE_ORDER)
        largest = self.recipe.sizes[-1]
        rows = {
            "OpenAI GPT": (self._model(LEFT), f"left to right, {self.recipe.base.title}"),
            "BERT Base": (self._model(BASE), f"BERT, {self.recipe.base.title}"),
            "BERT Large": (self._model(largest.name), f"BERT, {largest.title}"),
        }
        remark = ""
        if given := self._given():
            rows[""] = (given, f"given weights, {given.size.title}")
            remark = " No row of it began with weights that are given, as one of ours does."
        return Table(
            "table1",
            "GLUE",
            "Models fine-tuned on one task of GLUE each: one that reads from left to right only, "
            "as OpenAI GPT, and BERT in two sizes. F1 of MRPC, Spearman's rank correlation of "
            "STS-B, Matthews' correlation of CoLA, accuracy of the others, times 100.",
            tuple(Column(_title(task), f"{task.name}") for task in tasks),
            tuple(
                Row(
                    title,
                    paper,
                    tuple(
                        self._cell(task, model, num_seeds=self.recipe.top_seeds) for task in tasks
                    ),
                    tuple(published.GLUE.get(paper, {}).get(task.name) for task in tasks),
                )
                for paper, (model, title) in rows.items()
            ),
            "The paper's are of the test sets, ours of the dev sets. Its GPT was pre-trained on "
            f"other text, and by others.{remark}",
        )

    def _objectives(self) -> Table:
        tasks = [*self._ablation_tasks(), squad_task(self.sources.squad)]
        rows = {
            "BERT Base": ("masked and next sentence", BASE, _as_it_is),
            "No NSP": ("masked, no next sentence", MASKED, _as_it_is),
            "LTR & No NSP": ("left to right, no next sentence", LEFT, _as_it_is),
            "+ BiLSTM": ("left to right, with a BiLSTM on top", LEFT, _with_bilstm),
        }
        return Table(
            "table5",
            "What the two tasks of pre-training are worth",
            "The same text, steps and shape, and another objective. The last row is the model of "
            f"the row above it, fine-tuned with a BiLSTM on top.{self._seeds}",
            tuple(map(_column, tasks)),
            tuple(
                Row(
                    title,
                    paper,
                    tuple(self._whole_cell(task, name, use) for task in tasks),
                    tuple(published.OBJECTIVES[paper].get(task.name) for task in tasks),
                )
                for paper, (title, name, use) in rows.items()
            ),
            "The paper's MNLI and QNLI are left out. All of its rows are of BERT Base.",
        )

    def _sizes(self) -> Table:
        # Ours have the score by which the rate is chosen; more of another one may be chance.
        tasks = self._ablation_tasks("f1")
        titles = zip(map(_title, tasks), map(_title, self._ablation_tasks()), strict=True)
        rows = []
        names = [BASE if each == self.recipe.base else each.name for each in self.recipe.sizes]
        for size, name, (paper, values) in zip(
            self.recipe.sizes, names, published.SIZES.items(), strict=True
        ):
            perplexity = Cell(tuple(self._pretrainings(name)), "perplexity", is_whole=True)
            cells = (perplexity, *(self._whole_cell(task, name, _at_best_rate) for task in tasks))
            theirs = (values["perplexity"], *(values.get(task.name) for task in tasks))
            rows.append(Row(size.title, paper, cells, theirs))
        return Table(
            "table6",
            "What size is worth",
            "Five sizes, each trained for as many steps on the same text: the perplexity of masked "
            "tokens in text left out, and two tasks, each at that learning rate of "
            f"{', '.join(_RATES)} which is best on the dev set.{self._seeds}",
            (
                Column("perplexity", "perplexity", is_perplexity=True),
                *(Column(f"{ours}, best rate", their) for ours, their in titles),
            ),
            tuple(rows),
            "The paper's sizes are others, from small to large like ours. Its rates are the best "
            "on the dev set, too (appendix A.3).",
        )

    def _names(self) -> Table:
        elmo, given = self._model(ELMO), self._given()
        model, name = (given, "given weights") if given else (self._model(BASE), "BERT")
        berts = [
            (f"{name}, fine-tuned", "BERT Base, fine-tuned", model, model.name),
            *(
                (f"{name}, {title}", paper, features(model, layers), model.name)
                for layers, (title, paper) in _LAYERS.items()
            ),
        ]
        vectors = Model(
            "word_vectors",
            "",
            self.recipe.base,
            ("--feature_based", "--word_vectors=<word_vectors>/vectors.txt", "--lstm_size=256"),
        )
        others = [
            ("word vectors", "", vectors, "word_vectors"),
            ("ELMo: two LSTMs, weights learned", "ELMo", features(elmo, "weighted"), ELMO),
        ]
        remark = "The paper has no row of word vectors alone, and sums"
        if given:
            # Beside a model trained on more text, they would say nothing of what a model is worth.
            others = []
            remark = (
                f"All rows begin with weights that are given, {given.size.title}, so ours have no "
                "row of ELMo, which would have seen less text. The paper sums"
            )
        part = self.sources.conll
        tasks = (conll_task(part), conll_task(part, on_test=True))
        return Table(
            "table7",
            "Names: fine-tuning or features",
            "F1 of the names of CoNLL-2003. All but the fine-tuned model are frozen, and two "
            "BiLSTM layers of 256 units learn from their vectors, for "
            f"{FROZEN_EPOCHS} times as many epochs, since they begin with random weights.",
            (Column("CoNLL dev F1", "dev"), Column("CoNLL test F1", "test")),
            tuple(
                Row(
                    title,
                    paper,
                    tuple(self._cell(task, model, group=group) for task in tasks),
                    tuple(published.NAMES.get(paper, {}).get(name) for name in ("dev", "test")),
                )
                for title, paper, model, group in [*others, *berts]
            ),
            f"{remark} the last four layers by learned weights, where ours just adds them.",
        )

    def _masks(self) -> Table:
        [first] = self._glue_tasks("SST-2")
        names = conll_task(self.sources.conll)
        rows = []
        for masks, values in published.MASKS.items():
            name = BASE if masks == MASKS else f"masks-{masks.replace(',', '-')}"
            cells = (
                self._whole_cell(first, name),
                self._whole_cell(names, name),
                self._whole_cell(names, name, _frozen),
            )
            rows.append(
                Row(
                    masks.replace(",", " / "),
                    masks.replace(",", " / "),
                    cells,
                    tuple(values.values()),
                )
            )
        return Table(
            "table8",
            "What stands in the place of a masked token",
            "Of the tokens to predict, the percentages that become [MASK], stay as they are, or "
            f"become a random token.{self._seeds}",
            (
                Column(_title(first), "MNLI accuracy"),
                Column("CoNLL dev F1", "CoNLL dev F1"),
                Column("CoNLL F1, features", "CoNLL F1, features"),
            ),
            tuple(rows),
            "The paper has MNLI where ours has SST-2. Between most of its rows are some tenths "
            "of a point, less than ours can tell.",
        )

    def _steps(self) -> Table:
        [first] = self._glue_tasks("SST-2")
        tasks = (first, conll_task(self.sources.conll))
        rows = []
        steps: tuple[int, ...] = ()
        for title, name, rank in (("masked", BASE, 1.0), ("left to right", LEFT, 0.0)):
            cells = []
            places = points_of(name, self.recipe)
            steps = tuple(step for step, _ in places)
            for task in tasks:
                for step, source in places:
                    is_last = step == steps[-1]
                    at = name if is_last else f"{name}@{step}"
                    model = Model(at, source, self.models[name].size)
                    count = None if is_last else 1
                    cells.append(self._cell(task, model, group=name, num_seeds=count))
            rows.append(Row(title, title, tuple(cells), (rank,) * len(cells)))
        columns = [
            Column(title, "MNLI accuracy")
            for title in (_title(first), "CoNLL dev F1")
            for _ in steps
        ]
        return Table(
            "figure5",
            "Over the steps of pre-training",
            "Fine-tuned from checkpoints along two pre-trainings, masked and left to right. Steps "
            f"of {self.recipe.tokens:,} tokens; the last {self.recipe.steps[1]:,} are of longer "
            "sequences.",
            tuple(columns),
            tuple(rows),
            "The paper shows MNLI over a million steps, without numbers: the masked model is ahead "
            "of the other one almost from the start.",
            steps * len(tasks),
        )


_SCORES = {"f1": "F1", "matthews": "Matthews", "spearman": "Spearman", "accuracy": "accuracy"}


def _title(task: Task) -> str:
    return f"{task.title} {_SCORES[task.score]}"


def _column(task: Task) -> Column:
    return Column(_title(task), _title(task))

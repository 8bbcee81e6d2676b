"""A table of scores beside the paper's, and whether both put their rows in the same order."""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

# A difference counts that is this improbable among pairs without any.
_LEVEL = 0.05
# So far apart, in points, two rows of the paper's must be to have an order.
_APART = 0.5
# Nobody trains with more seeds.
_MOST_SEEDS = 1000
AGREES, DIFFERS, NOISE, UNKNOWN = "agrees", "differs", "within the noise", "not known"
NOT_RUN, NOT_THERE = "not run yet", "not in the paper"


@dataclasses.dataclass(frozen=True)
class Cell:
    """A score to be found in the ledger, the mean of several seeds.

    Attributes:
      jobs: Names of those that give it, one for each seed.
      score: Its name there.
      scale: What it is multiplied by.
      is_whole: Whether each seed is of the pre-training, too, and not of a fine-tuning alone.
    """

    jobs: tuple[str, ...]
    score: str
    scale: float = 1.0
    is_whole: bool = False


@dataclasses.dataclass(frozen=True)
class Column:
    """Scores of one kind.

    Attributes:
      title: Of ours.
      paper: Title of what the paper has in its place.
      is_perplexity: Whether less is better, and what counts is how many times as high a score is.
    """

    title: str
    paper: str
    is_perplexity: bool = False

    def comparable(self, score: "Score | None") -> "Score | None":
        """Returns a score, or its logarithm, whose deviation is about the relative one."""
        if score is None or not self.is_perplexity:
            return score
        relative = None if score.deviation is None else score.deviation / score.mean
        return Score(math.log(score.mean), relative, score.count)


@dataclasses.dataclass(frozen=True)
class Row:
    """A model, or a way to use one.

    Attributes:
      title: Of ours.
      paper: What the paper calls its own; "" where it has none.
      cells: Ours, one for each column, None where there is none.
      theirs: The paper's.
    """

    title: str
    paper: str
    cells: tuple[Cell | None, ...]
    theirs: tuple[float | None, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table, or a figure, whose rows are then the points of a line each.

    Attributes:
      key: As `--only` has it.
      title: What it is about.
      text: What is compared, in some sentences.
      columns: Of scores.
      rows: Of models.
      remark: What of the paper's is different.
      steps: Of a figure, what the columns stand for; else ().
    """

    key: str
    title: str
    text: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    remark: str = ""
    steps: tuple[int, ...] = ()

    @property
    def jobs(self) -> list[str]:
        """Names of all whose scores it shows, each once, row by row."""
        cells = (cell for row in self.rows for cell in row.cells if cell)
        return list(dict.fromkeys(job for cell in cells for job in cell.jobs))


@dataclasses.dataclass(frozen=True)
class Score:
    """The mean over seeds.

    Attributes:
      deviation: Standard deviation of one seed; None where there is only one.
      count: Of the seeds that have run.
    """

    mean: float
    deviation: float | None
    count: int

    def __str__(self) -> str:
        text = f"{self.mean:.1f}"
        return text if self.deviation is None else f"{text} ± {self.deviation:.1f}"


# By job, those of each time that it ran and led elsewhere.
Scores = Mapping[str, Sequence[Mapping[str, float]]]


def score_of(cell: Cell | None, scores: Scores) -> Score | None:
    """Returns a cell's score, None where no seed of it has run.

    Args:
      cell: Ours.
      scores: By job, those of the ledger.
    """
    if cell is None:
        return None
    values = [
        cell.scale * found[cell.score]
        for job in cell.jobs
        for found in scores.get(job, ())
        if math.isfinite(found.get(cell.score, math.nan))
    ]
    if not values:
        return None
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Score(statistics.fmean(values), deviation, len(values))


@dataclasses.dataclass(frozen=True)
class Noise:
    """How much scores differ by chance.

    Attributes:
      deviation: Standard deviation of one seed.
      freedom: The degrees of freedom from which it is known.
    """

    deviation: float
    freedom: float

    def least(self, count: float, other: float) -> float:
        """Returns the least difference of the means of so many seeds that counts."""
        # It takes a second to load, which the help of the command does without.
        from scipy import stats  # noqa: PLC0415

        errors = float(stats.t.ppf(1 - _LEVEL / 2, self.freedom))
        return errors * self.deviation * math.sqrt(1 / count + 1 / other)


def pooled_noise(scores: Iterable[Score | None]) -> Noise | None:
    """Returns the noise of one seed, from all scores that have several; or None."""
    several = [each for each in scores if each is not None and each.deviation is not None]
    freedom = sum(each.count - 1 for each in several)
    if not freedom:
        return None
    squares = sum((each.count - 1) * (each.deviation or 0.0) ** 2 for each in several)
    return Noise(math.sqrt(squares / freedom), freedom)


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How many pairs of rows stand in the paper's order.

    Attributes:
      same: Pairs that differ by more than noise, as they do in the paper.
      contrary: Pairs that differ by more than noise, the other way round.
      noise: Pairs that differ by no more than that.
      unknown: Pairs of which nothing tells noise from difference.
      in_paper: Whether the paper has an order of any rows.
      worst: The titles of the contrary pair that is furthest apart, first the better of ours.
      seeds: By pair within the noise, how many seeds of each row would tell the difference that
        was measured from noise.
    """

    same: int = 0
    contrary: int = 0
    noise: int = 0
    unknown: int = 0
    in_paper: bool = True
    worst: tuple[str, str] | None = None
    seeds: tuple[int, ...] = ()

    @property
    def pairs(self) -> int:
        """All of them."""
        return self.same + self.contrary + self.noise + self.unknown

    @property
    def verdict(self) -> str:
        """In a word."""
        if not self.pairs:
            return NOT_RUN if self.in_paper else NOT_THERE
        if self.contrary:
            return DIFFERS
        if self.same:
            return AGREES
        return NOISE if self.noise else UNKNOWN

    def tell(self) -> str:
        """Returns it as a sentence."""
        if not self.in_paper:
            return "The paper has no such column, or no order in it."
        if not self.pairs:
            return "There are not two rows to compare yet."
        noun = "pair" if self.pairs == 1 else "pairs"
        parts = [f"{self.same} of {self.pairs} {noun} of rows in the paper's order"]
        if self.contrary:
            parts.append(f"{self.contrary} the other way round")
        if self.noise:
            parts.append(f"{self.noise} within the noise{self._tell_seeds()}")
        if self.unknown:
            parts.append(f"{self.unknown} not known, for nothing tells noise from difference")
        text = ", ".join(parts)
        if self.worst:
            text += f" (furthest: {self.worst[0]} above {self.worst[1]})"
        return f"{text}."

    def _tell_seeds(self) -> str:
        if not self.seeds:
            return ""
        least, most = (
            f"{each:,}" if each < _MOST_SEEDS else f"more than {_MOST_SEEDS:,}"
            for each in (min(self.seeds), max(self.seeds))
        )
        count = least if least == most else f"{least} to {most}"
        such = "such a difference" if self.noise == 1 else "such differences"
        return f" ({count} seeds of each row would tell {such})"


def compare(
    column: Column,
    titles: Sequence[str],
    ours: Sequence[Score | None],
    theirs: Sequence[float | None],
    noise: Noise | None,
) -> Agreement:
    """Returns how the order of a column's rows agrees with that of the paper.

    Pairs that the paper has less than `_APART` apart are left out.

    Args:
      column: Of the scores.
      titles: Of the rows.
      ours: Their scores, None where they have not run.
      theirs: The paper's.
      noise: Of one seed; None where none is known, and nothing can be told. Nor can it from
        one of 0, which is that of scores which happen to be equal.
    """
    counts = dict.fromkeys(("same", "contrary", "noise", "unknown"), 0)
    worst: tuple[float, tuple[str, str]] | None = None
    seeds: list[int] = []
    ordered = _ordered(theirs)
    for first, second in ordered:
        one, other = ours[first], ours[second]
        if one is None or other is None:
            continue
        difference = one.mean - other.mean
        if not noise or not noise.deviation:
            counts["unknown"] += 1
        elif abs(difference) <= noise.least(one.count, other.count):
            counts["noise"] += 1
            seeds.append(_seeds_to_tell(abs(difference), noise))
        elif difference > 0:
            counts["same"] += 1
        else:
            counts["contrary"] += 1
            # The paper has the first above the second; which is better is the column's to say.
            pair = (titles[second], titles[first])
            pair = pair[::-1] if column.is_perplexity else pair
            worst = max(worst or (0.0, pair), (abs(difference), pair))
    return Agreement(**counts, in_paper=bool(ordered), worst=worst and worst[1], seeds=tuple(seeds))


def _seeds_to_tell(difference: float, noise: Noise) -> int:
    """Returns of how many seeds each two means must be for their difference to count."""
    count = (noise.least(1, 1) / difference) ** 2 if difference else math.inf
    return math.floor(min(count, _MOST_SEEDS - 1)) + 1


def _ordered(theirs: Sequence[float | None]) -> list[tuple[int, int]]:
    """Returns the pairs of rows that the paper has apart, first the one of the higher score."""
    known = [(row, value) for row, value in enumerate(theirs) if value is not None]
    return [
        (first, second)
        for (first, his), (second, hers) in itertools.permutations(known, 2)
        # In the paper's decimals, of which there are two at most.
        if round(his - hers, 2) >= _APART
    ]


def add(agreements: Iterable[Agreement]) -> Agreement:
    """Returns the pairs of several columns together."""
    each = list(agreements)
    return Agreement(
        sum(one.same for one in each),
        sum(one.contrary for one in each),
        sum(one.noise for one in each),
        sum(one.unknown for one in each),
        any(one.in_paper for one in each),
        seeds=tuple(itertools.chain.from_iterable(one.seeds for one in each)),
    )


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What has come of a table so far.

    Attributes:
      table: As it was planned.
      scores: Ours, by row and column.
      agreements: One for each column; of a figure, a single one.
    """

    table: Table
    scores: tuple[tuple[Score | None, ...], ...]
    agreements: tuple[Agreement, ...]

    @property
    def total(self) -> Agreement:
        """Of all columns."""
        return add(self.agreements)

    @property
    def done(self) -> tuple[int, int]:
        """How many cells have a score, and how many there are."""
        cells = [cell for row in self.table.rows for cell in row.cells]
        found = [score for row in self.scores for score in row]
        return sum(each is not None for each in found), sum(each is not None for each in cells)


def look_up(tables: Sequence[Table], scores: Scores) -> list[Outcome]:
    """Returns what has come of the tables.

    The noise of a score is known from all rows of all tables that have several seeds of it, of
    fine-tunings alone or of whole trainings.
    """
    found = {
        table.key: tuple(tuple(score_of(cell, scores) for cell in row.cells) for row in table.rows)
        for table in tables
    }
    compared = {
        table.key: [
            [*map(Column.comparable, table.columns, scores_of_row)]
            for scores_of_row in found[table.key]
        ]
        for table in tables
    }
    pools: dict[tuple[str, bool], dict[str, Score]] = {}
    for table in tables:
        for row, values in zip(table.rows, compared[table.key], strict=True):
            for column, cell, score in zip(table.columns, row.cells, values, strict=True):
                if cell and score:
                    # A row that stands in several tables counts once, with the most of its seeds.
                    pool = pools.setdefault((column.title, cell.is_whole), {})
                    known = pool.get(cell.jobs[0], score)
                    pool[cell.jobs[0]] = max(known, score, key=lambda each: each.count)
    noises = {key: pooled_noise(pool.values()) for key, pool in pools.items()}
    return [
        Outcome(table, found[table.key], _agreements(table, compared[table.key], noises))
        for table in tables
    ]


def _agreements(
    table: Table,
    compared: Sequence[Sequence[Score | None]],
    noises: Mapping[tuple[str, bool], Noise | None],
) -> tuple[Agreement, ...]:
    is_whole = any(cell.is_whole for row in table.rows for cell in row.cells if cell)
    titles = [row.title for row in table.rows]
    return tuple(
        compare(
            column,
            titles,
            [row[place] for row in compared],
            [row.theirs[place] for row in table.rows],
            noises.get((column.title, is_whole)),
        )
        for place, column in enumerate(table.columns)
    )

"""A pre-trained model that predicts tokens at [MASK], scores texts and encodes them.

The score of a text is its pseudo-log-likelihood: each token is masked in turn, and the logarithms
of the probabilities that the model then gives to it are added up (Salazar et al., Masked Language
Model Scoring, section 2).
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import modeling
import tokenization
from bert.files.texts import split_pair
from bert.models.model import Between, Guess, Score
from bert.models.model import Text as GivenText
from bert.models.vectors import Encoding, as_pair, check_list
from bert.network.blank import blank_variables
from bert.network.kernels import check_finite, infer
from bert.network.lengths import pad_sequences, sort_by_length
from bert.options import OptionError, typed_value
from bert.pretraining import heads as pretraining_heads
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from bert.weights.provenance import PAIR_HEAD, find_untrained
from bert.weights.variables import check_length

MASK = "[MASK]"
HEAD = "cls/predictions/"

# Maximum positions of a batch with logits: 60 MB for the released vocabularies.
MAX_POSITIONS = 512


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A text as the inputs of the model.

    Attributes:
      text: The text, with ` ||| ` between the two of a pair.
      place: Where it was read, for messages.
      tokens: `[CLS] a [SEP] (b [SEP])`, with `[MASK]` where the text has it.
      input_ids: The ids of the tokens.
      segment_ids: 0 up to the first [SEP], then 1.
    """

    text: str
    place: str
    tokens: Sequence[str]
    input_ids: Sequence[int]
    segment_ids: Sequence[int]

    def masks(self) -> list[int]:
        """Returns the positions of `[MASK]`."""
        return [position for position, token in enumerate(self.tokens) if token == MASK]

    def is_pair(self) -> bool:
        """Returns whether there is a second text."""
        return self.segment_ids[-1] > 0

    def words(self) -> list[int]:
        """Returns the positions of tokens other than [CLS] and [SEP] around the texts."""
        # The text itself may have [SEP], as an added token.
        last = len(self.tokens) - 1
        ends = {0, self.segment_ids.index(1) - 1 if self.is_pair() else last, last}
        return [position for position in range(len(self.tokens)) if position not in ends]


def total_score(scores: Sequence[Score]) -> Score:
    """Returns the score of several texts together."""
    return Score(
        sum(score.pseudo_log_likelihood for score in scores),
        sum(score.num_tokens for score in scores),
    )


def check_sides(config: modeling.BertConfig) -> None:
    """Checks that a model reads both sides of a token: no decoder, no LSTMs."""
    if config.is_bilstm:
        raise ValueError(
            "The model must read both sides of a [MASK] together. This one reads each by itself: "
            "`encoder_type` is 'bilstm' in its configuration, from the objective bilstm_lm."
        )
    if config.is_decoder:
        raise ValueError(
            "The model must read the text on both sides of a [MASK]. This one reads what is before "
            "it alone: `is_decoder` in its configuration, from the objective left_to_right."
        )


def check_head(stored: Stored, model: keras.Model) -> None:
    """Checks that a checkpoint has the whole masked-LM head of a model.

    Raises:
      OptionError: naming what it lacks.
    """
    needed = [v.path for v in model.weights if v.path.startswith(HEAD)]
    if missing := [name for name in needed if name not in stored.shapes]:
        raise OptionError(
            stored.option,
            f"have the masked-LM head of pre-training, {HEAD}*",
            stored.prefix,
            f"It lacks {missing}; was it fine-tuned, or stripped of its heads?",
        )


class PretrainedModel(Encoding):
    """A pre-trained model that fills masks, scores texts and encodes them.

    Args:
      folder: The folder of the model.
      batch_size: Sequences to compute at a time.
      precision: Name of a dtype policy.
      max_seq_length: Maximum tokens of a text for `encode`; None for as many as the model takes.
      with_heads: Whether to load the heads of pre-training, which then must be there; False for
        the encoder of any model; None for the heads of a model that has them.

    Attributes:
      config: The shape of the model.
      tokenizer: The tokenizer of the model.
      masked: A Keras model with the heads of pre-training; None without the masked-LM head.
      predicts_next: Whether the model has learned which texts follow others.

    Raises:
      ValueError: where files are missing, or do not fit each other.
    """

    kind = "pre-trained"
    predicts_next = False

    def __init__(
        self,
        folder: ModelFolder,
        batch_size: int = 32,
        precision: str = "float32",
        max_seq_length: int | None = None,
        *,
        with_heads: bool | None = None,
    ) -> None:
        self.config, stored = folder.config, folder.stored
        self.batch_size, self.max_seq_length = batch_size, max_seq_length
        if max_seq_length is not None:
            check_length(max_seq_length, self.config)
        self.labels = []
        self.methods = ("encode", "inputs")
        self.masked: keras.Model | None = None
        stored.check_fit(self.config)
        if with_heads is None:
            has_head = any(name.startswith(HEAD) for name in stored.shapes)
            with_heads = has_head and not (self.config.is_decoder or self.config.is_bilstm)
        with blank_variables() as blank:
            if with_heads:
                check_sides(self.config)
                self.tokenizer = folder.load_tokenizer(["[CLS]", "[SEP]", MASK])
                model = pretraining_heads.pretraining_model(self.config, dtype=precision)
                check_head(stored, model)
                self._open_heads(model, folder)
            else:
                self.tokenizer = folder.load_tokenizer()
                self.encoder = modeling.BertModel(self.config, dtype=precision)
                model = self.model
        blank.fill(but=stored.assign(model.weights))

    def _open_heads(self, model: keras.Model, folder: ModelFolder) -> None:
        self.masked, self.encoder = model, model.get_layer("bert")
        # A checkpoint may have a head that was not trained.
        learned = folder.stored.shapes.keys() - find_untrained(folder.path, folder.stored.shapes)
        self.predicts_next = any(name.startswith(PAIR_HEAD) for name in learned)
        pairs = ("next_sentence",) if self.predicts_next else ()
        self.methods = ("fill_mask", "score", *pairs, *self.methods)
        matrix, number = tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((), tf.int32)
        signature = dict.fromkeys(model.input, matrix)
        self._find_best = tf.function(self._best, [signature, number], autograph=False)
        self._rate = tf.function(self._log_likelihood, [signature, matrix], autograph=False)
        self._compare = tf.function(self._follows, [signature], autograph=False)

    @functools.cached_property
    def model(self) -> keras.Model:  # type: ignore[override]
        """A Keras model with `sequence_output` [B, S, H] and `pooled_output` [B, H]."""
        inputs = modeling.encoder_inputs()
        encoded = self.encoder(inputs)
        names = ("sequence_output", "pooled_output")
        return keras.Model(inputs, {name: encoded[name] for name in names})

    def _best(self, batch: dict[str, Any], top_k: Any) -> tuple[Any, Any]:
        """Returns probabilities and ids of the best tokens at each position, [B, P, top_k]."""
        logits = infer(self.masked, batch)["masked_lm_logits"]
        return tuple(tf.math.top_k(tf.nn.softmax(logits), top_k))

    def _log_likelihood(self, batch: dict[str, Any], labels: Any) -> Any:
        """Returns the logarithm of the probability of the label at each position, [B, P]."""
        logits = infer(self.masked, batch)["masked_lm_logits"]
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    def _follows(self, batch: dict[str, Any]) -> Any:
        """Returns the probability that the second text follows the first, [B]."""
        return tf.nn.softmax(infer(self.masked, batch)["next_sentence_logits"])[:, 0]

    def read_text(self, text: str | tuple[str, str], place: str = "The text") -> Text:
        """Returns a text as the inputs of the model.

        Args:
          text: A text `A` or a pair `A ||| B`; or two texts, of which the second may be empty.
          place: Where the text was read, for messages.

        Raises:
          ValueError: naming `place`, where the text is empty or too long.
        """
        texts = split_pair(text) if isinstance(text, str) else text
        text = " ||| ".join(filter(None, texts))
        a, b = map(self._tokenize, texts)
        length = len(a) + len(b) + (3 if b else 2)
        tokens, segment_ids = tokenization.pack(a, b, max_length=length)
        if not a and not b:
            raise ValueError(f"{place} must have at least one token. Received {text!r}.")
        if length > self.config.max_position_embeddings:
            raise ValueError(
                f"{place} must have at most {self.config.max_position_embeddings} tokens, [CLS] "
                f"and [SEP] included: `max_position_embeddings` of the model. It has {length}."
            )
        if segment_ids[-1] >= self.config.type_vocab_size:
            raise ValueError(
                f"{place} must not be a pair `A ||| B`, since `type_vocab_size` of the model is 1. "
                f"Received {text!r}."
            )
        input_ids = self.tokenizer.convert_tokens_to_ids(tokens)
        return Text(text, place, tokens, input_ids, segment_ids)

    def _tokenize(self, text: str) -> list[str]:
        """Returns the word pieces; the tokenizer itself would split `[MASK]`."""
        first, *others = map(self.tokenizer.tokenize, text.split(MASK))
        return first + [token for part in others for token in (MASK, *part)]

    def fill_mask(
        self, texts: Sequence[GivenText | Text], top_k: int = 5, *, between: Between = lambda: None
    ) -> list[list[list[Guess]]]:
        # Each [MASK] is predicted while the others stay masked.
        read = self._read_all(texts)
        top_k = typed_value("top_k", top_k, int, lower_bound=1)
        for text in read:
            self.check_masked(text)
        guesses: list[list[list[Guess]]] = [[] for _ in read]
        for numbers, batch in self._batches([(text, text.masks()) for text in read], between):
            found = self._find_best(batch, min(top_k, self.config.vocab_size))
            probabilities, ids = (check_finite(values.numpy()).tolist() for values in found)
            for row, number in enumerate(numbers):
                guesses[number] = [
                    self._guesses(probabilities[row][mask], ids[row][mask])
                    for mask in range(len(read[number].masks()))
                ]
        return guesses

    def fill_by_layer(self, text: Text, top_k: int = 5) -> list[list[list[Guess]]]:
        """Returns for each [MASK] of a text, for each layer, the best tokens.

        The masked-LM head reads the output of each layer as if it were the output of the last one,
        beginning with the embeddings.
        """
        named = {"input_ids": text.input_ids, "segment_ids": text.segment_ids}
        inputs = {name: np.array([values], np.int32) for name, values in named.items()}
        encoded = self.encoder(inputs)
        outputs = [encoded["embedding_output"], *encoded["encoder_layers"]]
        gathered = [tf.gather(output[0], text.masks()) for output in outputs]
        masked = tf.stack(gathered)  # [L + 1, P, H]
        assert self.masked is not None, "`text` was read for its heads."
        head = self.masked.get_layer("cls").predictions
        logits = head(masked, encoded["embedding_table"])  # [L + 1, P, V]
        best = tf.math.top_k(tf.nn.softmax(logits), min(top_k, self.config.vocab_size))
        layers = zip(best.values.numpy().tolist(), best.indices.numpy().tolist(), strict=True)
        found = [list(map(self._guesses, *layer)) for layer in layers]
        return [list(guesses) for guesses in zip(*found, strict=True)]

    def _guesses(self, probabilities: Sequence[float], ids: Sequence[int]) -> list[Guess]:
        names = self.tokenizer.inv_vocab
        # A table of embeddings may have more rows than the vocabulary has tokens.
        return [
            Guess(names.get(index, f"[{index}]"), probability)
            for index, probability in zip(ids, probabilities, strict=True)
        ]

    def score(
        self, texts: Sequence[GivenText | Text], *, between: Between = lambda: None
    ) -> list[Score]:
        read = self._read_all(texts)
        for text in read:
            self.check_whole(text)
        # Each token of each text once.
        queries = [(text, [position]) for text in read for position in text.words()]
        owners = [number for number, text in enumerate(read) for _ in text.words()]
        sums = np.zeros(len(read))
        for numbers, batch in self._batches(queries, between):
            positions = batch["masked_lm_positions"]
            labels = np.take_along_axis(batch["input_ids"], positions, axis=1)
            masked = batch["input_ids"].copy()
            np.put_along_axis(masked, positions, self.tokenizer.vocab[MASK], axis=1)
            rated = check_finite(self._rate({**batch, "input_ids": masked}, labels).numpy())
            np.add.at(sums, [owners[number] for number in numbers], rated[:, 0])
        return [
            Score(float(total), len(text.words())) for total, text in zip(sums, read, strict=True)
        ]

    def next_sentence(self, pairs: Sequence[tuple[str, str] | Text]) -> list[float]:
        read = self._read_all(pairs)
        for text in read:
            self.check_pair(text)
        found = np.zeros(len(read))
        for numbers, batch in self._batches([(text, [0]) for text in read]):
            found[numbers] = check_finite(self._compare(batch).numpy())
        return found.tolist()

    def check_masked(self, text: Text) -> None:
        """Checks that a text can be filled."""
        if not text.masks():
            raise ValueError(
                f"{text.place} must have {MASK} where a token is to be predicted; a text without "
                f"it can be scored. Received {text.text!r}."
            )

    def check_whole(self, text: Text) -> None:
        """Checks that a text can be scored."""
        if text.masks():
            raise ValueError(
                f"{text.place} must not have {MASK} to be scored. Received {text.text!r}."
            )

    def check_pair(self, text: Text) -> None:
        """Checks that the model can predict whether the second text follows the first."""
        if not self.predicts_next:
            raise ValueError(
                f"The model must have the next-sentence head of pre-training, {PAIR_HEAD}*, to "
                "predict whether a text follows another. It has none that was trained."
            )
        if not text.is_pair():
            raise ValueError(
                f"{text.place} must be a pair `A ||| B` to predict whether B follows A. Received "
                f"{text.text!r}."
            )

    def _read_all(self, texts: Sequence[GivenText | Text]) -> list[Text]:
        check_sides(self.config)
        if self.masked is None:
            raise ValueError(
                f"The model must have the masked-LM head of pre-training, {HEAD}*, to predict "
                "tokens. It has an encoder alone; `encode` works."
            )
        return [
            text
            if isinstance(text, Text)
            else self.read_text(as_pair(text, number), f"Text {number}, counted from 0,")
            for number, text in enumerate(check_list(texts))
        ]

    def _batches(
        self, queries: Sequence[tuple[Text, Sequence[int]]], between: Between = lambda: None
    ) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
        """Yields the numbers of the queries of a batch, and the inputs of the model for them.

        Args:
          queries: Texts, and the positions to predict.
          between: Called after each batch.
        """
        longest = max((len(positions) for _, positions in queries), default=1)
        batch_size = max(min(self.batch_size, MAX_POSITIONS // longest), 1)
        for numbers in sort_by_length([len(text.tokens) for text, _ in queries], batch_size):
            rows = [queries[number] for number in numbers]
            batch = pad_sequences(
                [text.input_ids for text, _ in rows],
                [text.segment_ids for text, _ in rows],
                self.config.max_position_embeddings,
            )
            width = max(len(positions) for _, positions in rows)
            # Padding predicts [CLS]; these predictions are not read.
            padded = [[*positions, *[0] * (width - len(positions))] for _, positions in rows]
            yield numbers, {**batch, "masked_lm_positions": np.array(padded, np.int32)}
            between()

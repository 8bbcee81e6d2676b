"""SavedModels that answer questions: from strings to answers in one graph (paper, section 4.2).

The graph computes what `LoadedModel.predict` does, padding excluded from the best positions, and
needs no code of this project.

Dimension key: `B` questions, `A` questions with an answer, `W` windows, `S` sequence, `N` best
positions, `T` tokens of all paragraphs, concatenated.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert.export import saved_model
from bert.export.tokenizer import GraphTokenizer
from bert.tasks.squad.options import NUM_SPECIAL, DecodingOptions

Tensor = Any

# The score of positions and spans that are not allowed.
_NEVER = -float("inf")

# A sequence of characters at which `GraphTokenizer.tokenize_words` splits a paragraph.
_SEPARATORS = "[ \t\r\n\N{NARROW NO-BREAK SPACE}]+"


def export_answerer(
    folder: str,
    model: keras.Model,
    tokenizer: GraphTokenizer,
    *,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    decoding: DecodingOptions,
) -> None:
    """Writes a SavedModel that answers questions.

    The signature `serving_default` takes `question` and `context`, string [B], of any length. It
    returns `answer`, string [B], empty for "no answer"; `start` and `end` (exclusive), int32 [B],
    in characters of the context, -1 for "no answer"; and `score`, float32 [B], the sum of the
    answer's logits. Bytes that are not UTF-8 are dropped and not counted. Spaces within an answer
    become single ones, as in all predictions for SQuAD. The signature `features` takes `input_ids`,
    `input_mask` and `segment_ids`, int32 [B, S], and returns `start_logits` and `end_logits`,
    float32 [B, S].

    Args:
      folder: The folder to write; a SavedModel in it is replaced.
      model: A model from `input_ids`, `input_mask` and `segment_ids` to the two logits.
      tokenizer: The tokenizer that the model was trained with, as a graph.
      max_seq_length: Maximum tokens per window.
      doc_stride: Tokens from the start of one window to the start of the next.
      max_query_length: Maximum tokens per question; longer questions are truncated.
      decoding: The options that choose among spans.

    Raises:
      ValueError: before anything is written, if a window is longer than the model takes.
    """
    exported = _Answerer(model, tokenizer, max_seq_length, doc_stride, max_query_length, decoding)

    def serve(question: Tensor, context: Tensor) -> dict[str, Tensor]:
        return exported.answer(question, context)

    specs = [tf.TensorSpec([None], tf.string, name=name) for name in ("question", "context")]
    signatures = {
        "serving_default": tf.function(serve, input_signature=specs, autograph=False),
        "features": saved_model.features_function(exported.run),
    }
    saved_model.save(folder, exported, signatures)


class _Paragraphs(NamedTuple):
    """The contexts, decoded and tokenized.

    Attributes:
      texts: The contexts without bytes that are not UTF-8, string [B].
      words: The words of all paragraphs, string [words].
      word_starts: The offset of each word in the characters of its paragraph, int32 [words].
      ids: The ids of the tokens, int32 [B, (tokens)].
      token_words: The index in `words` of each token's word, int64 [T].
    """

    texts: Tensor
    words: Tensor
    word_starts: Tensor
    ids: tf.RaggedTensor
    token_words: Tensor


class _Windows(NamedTuple):
    """The windows of all questions.

    Attributes:
      questions: The index of each window's question, int64 [W].
      tokens: The index among all tokens of the token at each position, int64 [W, S]; -1 at
        positions outside the paragraph.
      may_begin: Whether an answer may begin at each position, bool [W, S].
      features: The model's inputs, int32 [W, S].
    """

    questions: Tensor
    tokens: Tensor
    may_begin: Tensor
    features: Mapping[str, Tensor]


class _Spans(NamedTuple):
    """The best span of each question that has a span.

    Attributes:
      questions: The index of the question, int64 [A].
      first: The index of the first token among all tokens, int64 [A].
      last: The index of the last token, int64 [A].
      start_logits: The logit of the first token, float64 [A].
      end_logits: The logit of the last token, float64 [A].
    """

    questions: Tensor
    first: Tensor
    last: Tensor
    start_logits: Tensor
    end_logits: Tensor

    def choose(self, mask: Tensor) -> "_Spans":
        """Returns the spans for which the mask, bool [A], is true."""
        return _Spans(*(tf.boolean_mask(values, mask) for values in self))


class _Answerer(saved_model.ExportedModel):
    """A model that answers questions, from strings to answers."""

    def __init__(
        self,
        model: keras.Model,
        tokenizer: GraphTokenizer,
        max_seq_length: int,
        doc_stride: int,
        max_query_length: int,
        decoding: DecodingOptions,
    ) -> None:
        super().__init__(model, tokenizer, max_seq_length)
        self._doc_stride = doc_stride
        self._max_query_length = max_query_length
        self._decoding = decoding
        token_of = tokenizer.source.inv_vocab
        tokens = [token_of.get(number, "") for number in range(max(token_of) + 1)]
        with tf.device("/CPU:0"):
            self._tokens = tf.constant(tokens, tf.string)

    def answer(self, questions: Tensor, contexts: Tensor) -> dict[str, Tensor]:
        """Returns the answers to questions, string [B], from contexts, string [B]."""
        with tf.device("/CPU:0"):
            tf.debugging.assert_equal(
                tf.size(questions),
                tf.size(contexts),
                "`question` and `context` must be equally many.",
            )
            question_ids = self.tokenizer.tokenize(questions)[:, : self._max_query_length]
            paragraphs = self._read(contexts)
            windows = self._windows(question_ids, paragraphs.ids)
        outputs = self.run_in_batches(windows.features)
        with tf.device("/CPU:0"):
            start, end = (
                tf.cast(outputs[name], tf.float64) for name in ("start_logits", "end_logits")
            )
            spans = self._best_spans(windows, start, end)
            scores = tf.zeros([tf.size(questions)], tf.float64)
            if self._decoding.version_2_with_negative:
                scores = _null_scores(windows, start, end, tf.size(questions))
                spans = spans.choose(~self._is_null(tf.gather(scores, spans.questions), spans))
            return self._answers(paragraphs, spans, scores)

    def _read(self, contexts: Tensor) -> _Paragraphs:
        texts = tf.strings.unicode_transcode(contexts, "UTF-8", "UTF-8", errors="ignore")
        words, starts, pieces = self.tokenizer.tokenize_words(texts)
        ids = pieces.merge_dims(1, 2)
        return _Paragraphs(texts, words.values, starts.values, ids, pieces.values.value_rowids())

    def _windows(self, questions: tf.RaggedTensor, paragraphs: tf.RaggedTensor) -> _Windows:
        """Returns the windows, which start where `windows.slide` puts them.

        Args:
          questions: int32 [B, (tokens)].
          paragraphs: int32 [B, (tokens)].
        """
        num_tokens = paragraphs.row_lengths()
        room = self.max_seq_length - NUM_SPECIAL - questions.row_lengths()
        step = tf.minimum(room, self._doc_stride)
        further = -(-tf.maximum(num_tokens - room, 0) // step)
        number = tf.ragged.range(tf.where(num_tokens > 0, 1 + further, 0))
        rows = number.value_rowids()
        starts = number.values * tf.gather(step, rows)
        counts = tf.minimum(tf.gather(num_tokens, rows) - starts, tf.gather(room, rows))[:, None]
        starts = (starts + tf.gather(paragraphs.row_starts(), rows))[:, None]  # [W, 1]
        parts = tf.ragged.range(starts[:, 0], (starts + counts)[:, 0])
        parts = parts.with_values(tf.gather(paragraphs.values, parts.values))
        own = tf.gather(questions, rows)
        features = self.tokenizer.pack(own, parts, max_seq_length=self.max_seq_length)
        positions = tf.range(tf.shape(features["input_ids"], tf.int64)[1])
        offsets = positions - (own.row_lengths() + 2)[:, None]  # [W, S]
        tokens = tf.where((offsets >= 0) & (offsets < counts), starts + offsets, -1)
        may_begin = _max_context(tokens, offsets, counts, tf.size(paragraphs.values))
        return _Windows(rows, tokens, may_begin, features)

    def _best_spans(self, windows: _Windows, start: Tensor, end: Tensor) -> _Spans:
        """Returns the best spans, as `answers.decode_windows` does, from logits float64 [W, S]."""
        size = tf.shape(start)[1]
        count = tf.minimum(self._decoding.n_best_size, size)
        is_token = windows.features["input_mask"] > 0
        # Faithful: tokens of the question take places among the n best, too. `top_k` puts the first
        # of equal logits first.
        firsts, lasts = (
            tf.math.top_k(tf.where(is_token, logits, _NEVER), count).indices  # [W, N]
            for logits in (start, end)
        )
        lengths = lasts[:, None, :] - firsts[:, :, None] + 1  # [W, N, N]
        allowed = (lengths >= 1) & (lengths <= self._decoding.max_answer_length)
        allowed &= tf.gather(windows.may_begin, firsts, batch_dims=1)[:, :, None]
        allowed &= tf.gather(windows.tokens >= 0, lasts, batch_dims=1)[:, None, :]
        scores = tf.gather(start, firsts, batch_dims=1)[:, :, None]
        scores += tf.gather(end, lasts, batch_dims=1)[:, None, :]
        scores = tf.reshape(tf.where(allowed, scores, _NEVER), [-1, count * count])
        best = tf.math.top_k(scores, 1)
        number = _first_best(best.values[:, 0], windows.questions)
        place = tf.gather(best.indices[:, 0], number)

        def at(values: Tensor, places: Tensor) -> Tensor:
            return tf.gather(tf.gather(values, number), places, batch_dims=1)

        first, last = at(firsts, place // count), at(lasts, place % count)
        return _Spans(
            questions=tf.gather(windows.questions, number),
            first=at(windows.tokens, first),
            last=at(windows.tokens, last),
            start_logits=at(start, first),
            end_logits=at(end, last),
        )

    def _is_null(self, null: Tensor, spans: _Spans) -> Tensor:
        """Returns whether "no answer" is better than each span, bool [A].

        Args:
          null: The scores of "no answer" for the questions of the spans, float64 [A].
          spans: The best spans.
        """
        odds = null - spans.start_logits - spans.end_logits
        return odds > self._decoding.null_score_diff_threshold

    def _answers(self, paragraphs: _Paragraphs, spans: _Spans, scores: Tensor) -> dict[str, Tensor]:
        """Returns the answers; `scores`, float64 [B], are those of questions without a span."""
        starts, ends = self._places(paragraphs, spans)
        texts = tf.gather(paragraphs.texts, spans.questions)
        texts = tf.strings.substr(texts, starts, ends - starts, unit="UTF8_CHAR")
        answers = tf.strings.regex_replace(texts, _SEPARATORS, " ")

        def put(default: Tensor, values: Tensor) -> Tensor:
            return tf.tensor_scatter_nd_update(default, spans.questions[:, None], values)

        none = tf.fill(tf.shape(scores), -1)
        scores = put(scores, spans.start_logits + spans.end_logits)
        return {
            "answer": put(tf.fill(tf.shape(scores), ""), answers),
            "start": put(none, starts),
            "end": put(none, ends),
            "score": tf.cast(scores, tf.float32),
        }

    def _places(self, paragraphs: _Paragraphs, spans: _Spans) -> tuple[Tensor, Tensor]:
        """Returns the start and end of answers in their contexts, as `answers.align` finds them."""
        first_words = tf.gather(paragraphs.token_words, spans.first)
        last_words = tf.gather(paragraphs.token_words, spans.last)
        original = _join(paragraphs.words, first_words, last_words)
        split = self.tokenizer.split(original)
        split = tf.strings.reduce_join(split, axis=-1, separator=" ")
        pieces = tf.gather(self._tokens, paragraphs.ids.values)
        wanted = _join(pieces, spans.first, spans.last)
        wanted = tf.strings.regex_replace(tf.strings.regex_replace(wanted, " ##", ""), "##", "")
        is_found, before = _find(wanted, split)
        is_found &= _num_letters(split) == _num_letters(original)
        # Letters, which are all characters but separators, are numbered through all paragraphs.
        stops = tf.cumsum(_num_letters(paragraphs.words))  # [words]
        first_letters = tf.gather(stops, first_words) - _num_letters(
            tf.gather(paragraphs.words, first_words)
        )
        last_letters = tf.gather(stops, last_words) - 1
        aligned = first_letters + _num_letters(before)
        last_letters = tf.where(is_found, aligned + _num_letters(wanted) - 1, last_letters)
        first_letters = tf.where(is_found, aligned, first_letters)

        def place(letters: Tensor) -> Tensor:
            words = tf.searchsorted(stops, letters, side="right")
            left = tf.gather(stops, words) - letters
            word_stops = paragraphs.word_starts + _num_letters(paragraphs.words)
            return tf.gather(word_stops, words) - left

        return place(first_letters), place(last_letters) + 1


def _max_context(tokens: Tensor, offsets: Tensor, counts: Tensor, num_tokens: Tensor) -> Tensor:
    """Returns whether each token has its maximum context in a window: `WindowTable.max_context`.

    Args:
      tokens: The `tokens` of `_Windows`.
      offsets: The positions from the start of the window's part of the paragraph, int64 [W, S].
      counts: The number of tokens of that part, int64 [W, 1].
      num_tokens: T.

    Returns:
      bool [W, S], false at positions outside the paragraph.
    """
    # Faithful: this very arithmetic, since its rounding decides which windows are equal.
    least = tf.cast(tf.minimum(offsets, counts - 1 - offsets), tf.float64)
    scores = least + tf.constant(0.01, tf.float64) * tf.cast(counts, tf.float64)
    best = tf.math.unsorted_segment_max(scores, tokens, num_tokens)
    places = tf.maximum(tokens, 0)
    is_best = (tokens >= 0) & (scores == tf.gather(best, places))
    windows = tf.range(tf.shape(tokens)[0])[:, None] + tf.zeros_like(tokens, tf.int32)
    # The first of equal windows wins.
    first = tf.math.unsorted_segment_min(windows, tf.where(is_best, tokens, -1), num_tokens)
    return is_best & (windows == tf.gather(first, places))


def _first_best(scores: Tensor, questions: Tensor) -> Tensor:
    """Returns the first window with the highest score of each question with a span, [A]."""
    # Questions that have windows are numbered from 0.
    _, numbers = tf.unique(questions)
    best = tf.math.unsorted_segment_max(scores, numbers, tf.size(scores))
    is_best = (scores == tf.gather(best, numbers)) & (scores > _NEVER)
    windows = tf.where(is_best)[:, 0]
    own = tf.gather(questions, windows)
    return tf.boolean_mask(windows, own != tf.concat([[-1], own[:-1]], 0))


def _null_scores(windows: _Windows, start: Tensor, end: Tensor, count: Tensor) -> Tensor:
    """Returns the lowest score of "no answer" among each question's windows, float64 [B]."""
    scores = start[:, 0] + end[:, 0]
    least = tf.math.unsorted_segment_min(scores, windows.questions, count)
    num_windows = tf.math.unsorted_segment_sum(tf.ones_like(scores), windows.questions, count)
    return tf.where(num_windows > 0, least, 0.0)


def _join(texts: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Returns the texts from index `first` to `last`, int64 [A], joined by spaces."""
    chosen = tf.ragged.range(first, last + 1)
    chosen = chosen.with_values(tf.gather(texts, chosen.values))
    return tf.strings.reduce_join(chosen, axis=-1, separator=" ")


def _find(wanted: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
    """Returns whether each text contains the wanted one, and the text before it."""

    def find(each: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        part, text = each
        parts = tf.strings.split(text[None], part).values
        return tf.size(parts) > 1, parts[0]

    return tf.map_fn(find, (wanted, texts), fn_output_signature=(tf.bool, tf.string))


def _num_letters(texts: Tensor) -> Tensor:
    """Returns the number of characters of each text without spaces, int32."""
    return tf.strings.length(tf.strings.regex_replace(texts, " ", ""), unit="UTF8_CHAR")

import numpy as np
import pytest
from conftest import change

import tokenization
from bert.models import pretrained as pretrained_models
from bert.models.model import Score
from bert.models.pretrained import PretrainedModel
from bert.pretraining.heads import pretraining_model
from bert.weights.folder import ModelFolder
from bert.weights.saving import save_tensors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "##s", "."]
TEXTS = ["the cat sat", "cats ||| the mat .", "on", "the cat sat on the mats .", "cat [UNK]"]


@pytest.fixture
def model(still_config, tmp_path):
    config = change(still_config, vocab_size=len(WORDS), max_position_embeddings=12)
    folder = ModelFolder(str(tmp_path))
    folder.save(config, "".join(f"{word}\n" for word in WORDS).encode(), do_lower_case=True)
    tensors = {v.path: np.asarray(v) * 20 for v in pretraining_model(config).weights}
    save_tensors(str(tmp_path / "bert_model.ckpt"), tensors)
    return PretrainedModel(folder)


def log_probabilities(model, text, masked):
    """Returns log p [S, V] at every position of one text, without any batching."""
    length = len(text.tokens)
    ids = np.array([text.input_ids])
    ids[0, masked] = WORDS.index("[MASK]")
    outputs = model.masked(
        {
            "input_ids": ids,
            "input_mask": np.ones((1, length), np.int32),
            "segment_ids": np.array([text.segment_ids]),
            "masked_lm_positions": np.arange(length)[None],
        }
    )
    logits = np.asarray(outputs["masked_lm_logits"][0], np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_a_mask_in_the_text_is_one_token(model):
    text = model.read_text("The [MASK]s ||| on[MASK] .")
    assert text.tokens == ["[CLS]", "the", "[MASK]", "[UNK]", "[SEP]", "on", "[MASK]", ".", "[SEP]"]
    assert text.segment_ids == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert text.masks() == [2, 6]
    assert text.words() == [1, 2, 3, 5, 6, 7]


def test_a_separator_in_the_text_is_a_word_of_it(model):
    added = [tokenization.AddedToken("[SEP]", normalized=False, special=True)]
    vocab = model.tokenizer.vocab
    model.tokenizer = tokenization.FullTokenizer.from_vocab(vocab, added_tokens=added)
    words = {"[SEP]": [1], "the [SEP] cat": [1, 2, 3], "the [SEP] ||| cat [SEP]": [1, 2, 4, 5]}
    texts = [model.read_text(text) for text in words]
    assert [text.words() for text in texts] == [*words.values()]
    assert model.read_text(("", "cat")).words() == [2]
    scores = model.score(texts)
    assert [score.num_tokens for score in scores] == [1, 3, 4]
    assert all(score.perplexity > 1 for score in scores)


def test_guesses_are_the_likeliest_tokens_in_order(model):
    texts = [model.read_text("the [MASK] sat on the [MASK] ."), model.read_text("[MASK] ||| cat")]
    for text, guesses in zip(texts, model.fill_mask(texts, top_k=4), strict=True):
        assert len(guesses) == len(text.masks())
        rows = np.exp(log_probabilities(model, text, text.masks())[text.masks()])
        for row, found in zip(rows, guesses, strict=True):
            best = np.argsort(-row)[:4]
            assert [guess.token for guess in found] == [WORDS[index] for index in best]
            # Its layers are normalized by another kernel.
            np.testing.assert_allclose([guess.probability for guess in found], row[best], rtol=1e-3)


def test_all_guesses_together_are_certain(model):
    [[guesses]] = model.fill_mask([model.read_text("the [MASK]")], top_k=100)
    assert {guess.token for guess in guesses} == set(WORDS)
    assert sum(guess.probability for guess in guesses) == pytest.approx(1, abs=1e-5)


def test_a_score_adds_up_each_token_masked_in_turn(model):
    texts = [model.read_text(text) for text in TEXTS]
    for text, score in zip(texts, model.score(texts), strict=True):
        total = sum(
            log_probabilities(model, text, [position])[position, text.input_ids[position]]
            for position in text.words()
        )
        assert score.num_tokens == len(text.words())
        assert score.pseudo_log_likelihood == pytest.approx(total, rel=1e-4)
        assert score.perplexity == pytest.approx(np.exp(-total / score.num_tokens), rel=1e-4)


def test_answers_do_not_depend_on_the_batch(model, monkeypatch):
    texts = [model.read_text(text) for text in TEXTS]
    masked = [model.read_text(f"{text} [MASK] on [MASK]") for text in TEXTS[:3]]
    scores, guesses = model.score(texts), model.fill_mask(masked, 3)
    model.batch_size = 3
    monkeypatch.setattr(pretrained_models, "MAX_POSITIONS", 2)
    np.testing.assert_allclose(
        [score.pseudo_log_likelihood for score in model.score(texts)],
        [score.pseudo_log_likelihood for score in scores],
        rtol=1e-5,
    )
    assert [
        [[guess.token for guess in mask] for mask in masks] for masks in model.fill_mask(masked, 3)
    ] == [[[guess.token for guess in mask] for mask in masks] for masks in guesses]


def test_texts_that_cannot_be_answered_are_errors_with_their_place(model):
    with pytest.raises(ValueError, match=r"here: the text must have at most 12 tokens.*It has 13"):
        model.read_text("cat " * 11, "here: the text")
    assert len(model.read_text("cat " * 10).tokens) == 12
    with pytest.raises(ValueError, match=r"here must have at least one token. Received ' '"):
        model.read_text(" ", "here")
    with pytest.raises(ValueError, match=r"here must have \[MASK\].*Received 'the cat'"):
        model.fill_mask([model.read_text("the [MASK]"), model.read_text("the cat", "here")])
    with pytest.raises(ValueError, match=r"here must not have \[MASK\] to be scored"):
        model.score([model.read_text("the [MASK]", "here")])


def test_a_model_of_one_segment_takes_no_pairs(model):
    model.config = change(model.config, type_vocab_size=1)
    with pytest.raises(ValueError, match=r"here must not be a pair.*`type_vocab_size`"):
        model.read_text("the ||| cat", "here")


def test_a_pair_is_scored_by_the_next_sentence_head(model):
    pairs = [
        model.read_text(text) for text in ("cats ||| the mat .", "the ||| cat", "on ||| the mats")
    ]
    chances = model.next_sentence(pairs)
    for text, chance in zip(pairs, chances, strict=True):
        length = len(text.tokens)
        outputs = model.masked(
            {
                "input_ids": np.array([text.input_ids]),
                "input_mask": np.ones((1, length), np.int32),
                "segment_ids": np.array([text.segment_ids]),
                "masked_lm_positions": np.zeros((1, 1), np.int32),
            }
        )
        is_next, is_random = np.asarray(outputs["next_sentence_logits"][0], np.float64)
        # Its layers are normalized by another kernel.
        assert chance == pytest.approx(1 / (1 + np.exp(is_random - is_next)), abs=1e-4)
    with pytest.raises(ValueError, match=r"here must be a pair `A \|\|\| B` .*Received 'the cat'"):
        model.next_sentence([model.read_text("the cat", "here")])
    model.predicts_next = False
    with pytest.raises(ValueError, match="must have the next-sentence head of pre-training"):
        model.next_sentence(pairs)


def test_values_that_overflow_are_refused(model):
    model.masked.weights[0].assign(np.asarray(model.masked.weights[0]) + np.inf)
    for answer, text in (
        (model.fill_mask, "the [MASK]"),
        (model.score, "the cat"),
        (model.next_sentence, "the ||| cat"),
    ):
        with pytest.raises(ValueError, match=r"must be finite.* give another precision"):
            answer([model.read_text(text)])


def test_a_text_that_is_hardly_possible_has_a_finite_perplexity():
    assert 1e300 < Score(-2000.0, 2).perplexity < np.inf

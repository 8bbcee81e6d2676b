import pytest
from conftest import ROOT

from bert.text.vocabulary import find_casing, warn_of_casing

SPECIAL = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "<S>",
    *(f"[unused{i}]" for i in range(99)),
]
WORDS = [f"{a}{b}{c}" for a in "abcdefghijklm" for b in "aeiouy" for c in "lmnrstvwxyzp##"]
UNCASED = [*SPECIAL, *"0123456789,.?", *WORDS, *(f"##{word}" for word in WORDS)]
CASED = [*UNCASED, *(word.capitalize() for word in WORDS)]
CHINESE = [*SPECIAL, *map(chr, range(0x4E00, 0x8E00))]


@pytest.mark.parametrize(
    ("vocab", "is_cased"),
    [
        (UNCASED, False),
        (CASED, True),
        # A slip or two among many words, as in real vocabularies.
        ([*UNCASED, "iPhone"], False),
        ([*UNCASED, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"], None),
        (CHINESE, None),
        ([*CHINESE, *WORDS[:300]], None),
        (["[UNK]", "the", "cat"], None),
        (["[UNK]", "The", "Cat"], None),
        ([], None),
    ],
)
def test_casing_is_found_where_it_is_certain(vocab, is_cased):
    assert find_casing(vocab) is is_cased


@pytest.mark.parametrize(("vocab", "kind"), [(UNCASED, "an uncased"), (CASED, "a cased")])
def test_a_flag_that_contradicts_the_vocabulary_is_a_warning(vocab, kind, log):
    warn_of_casing(vocab, "v.txt", vocab is UNCASED)
    assert log.messages == []
    warn_of_casing(vocab, "v.txt", vocab is CASED)
    (message,) = log.messages
    assert message.startswith(f"v.txt is the vocabulary of {kind} model, but `do_lower_case` is")
    assert message.endswith(f"Is `do_lower_case={vocab is UNCASED}` meant?")


@pytest.mark.parametrize(
    ("name", "is_cased"), [("cased", True), ("uncased", False), ("chinese", False)]
)
def test_casing_of_the_released_vocabularies_is_known(name, is_cased):
    path = ROOT.parent / "shared" / "data" / "vocab" / f"bert-base-{name}-vocab.txt"
    if not path.exists():
        pytest.skip(f"{path} is not there.")
    assert find_casing(path.read_text(encoding="utf-8").splitlines()) is is_cased

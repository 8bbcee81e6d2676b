"""What tests of several modules share of `export_tokenizer`."""

import functools
import unicodedata

import tensorflow as tf
from hypothesis import strategies as st

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


BATCH = 8


# Characters whose neighbours, order or lack of a category matter.
ODD = (
    "\x00\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\xad\u180e\u200b\u200d\u2028\u2029\u3000\ufeff\ufffd"
    "\u03a3\u03a3\u03a3\u03c3\u03c2\u0391\u0130\u0131\xdf\u1e9e\u0301\u0323\u0345\u034f\u4e2d\uf900"
    "\U0002f800\U00020000\U0010ffff\U0001d160\U0001d165\U0001d16d\u302e\u302f\ud55c\u09cb\u1e69"
    "\u037e\u1fef\u2260\u2126\u212a\uffff\ufdd0 ,.;:'\"_-#[]$^`~<=>+|\u2019\u201c\xb7"
)


characters = st.one_of(st.sampled_from(ODD + "abABI  "), st.characters(exclude_categories=["Cs"]))


texts = st.text(characters, max_size=40)


batches = st.lists(texts, min_size=BATCH, max_size=BATCH)


# Broken, overlong and encoded surrogates among them.
raw_texts = st.lists(
    st.one_of(
        texts.map(str.encode),
        st.sampled_from([b"\xe4\xb8", b"\xed\xa0\x80", b"\xc0\xaf"]),
        st.binary(max_size=4),
    ),
    max_size=8,
).map(b"".join)


def graph(method):
    """Compiles a method for strings; batches of any size share the graph."""
    return tf.function(method, autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])


@functools.cache
def many_characters():
    """Returns all characters that are worth a look, and each 64th of the others."""
    chars = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    return [char for char in chars if ord(char) % 64 == 0 or is_worth_a_look(char)]


def is_worth_a_look(char):
    """Of the large blocks of characters that are all alike, some will do."""
    category = unicodedata.category(char)
    return category not in ("Cn", "Co", "Cs", "Lo") or char < "\u3400" or ord(char) % 64 == 63

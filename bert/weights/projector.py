"""Makes the files with which TensorBoard's projector shows the word embeddings of a folder.

The projector reads the table from the latest checkpoint, and the words from a file beside it.
"""

CONFIG_FILE = "projector_config.pbtxt"
WORDS_FILE = "projector_words.tsv"

_CONFIG = """\
embeddings {{
  tensor_name: "bert/embeddings/word_embeddings"
  metadata_path: "{words}"
}}
"""


def projector_files(vocabulary: bytes, vocab_size: int) -> dict[str, bytes]:
    """Returns by name the files for the projector.

    Args:
      vocabulary: The text of a `vocab.txt`.
      vocab_size: Rows of the table; there is a label for each.
    """
    tokens = vocabulary.decode("utf-8-sig", "replace").split("\n")[:vocab_size]
    # No tab and nothing that some program takes for the end of a line; a blank line would be left
    # out, and the labels behind it would be those of other rows.
    labels = [" ".join(token.split()) for token in tokens]
    labels += [""] * (vocab_size - len(labels))
    lines = [f"{label or f'[{row}]'}\n" for row, label in enumerate(labels)]
    return {
        CONFIG_FILE: _CONFIG.format(words=WORDS_FILE).encode(),
        WORDS_FILE: "".join(lines).encode(),
    }

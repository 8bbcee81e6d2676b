"""Runs the code of docs/from_transformers.md in its environments, and compares what it computes.

    python interop/idioms.py FOLDER transformers=…/bin/python keras-bert=…/bin/python

`make test-formats` does so in the environments that it makes. FOLDER gets small models of random
weights under the names of the page. The code of each library is run by the Python that is named for
it, and the code after it, of this project, by the Python that runs this file. Of the variables that
both set, numbers and texts are compared.

transformers==4.49.0 with tensorflow==2.18.1, tf-keras==2.18.0 and datasets runs in Python 3.11;
keras-bert==0.89.0 and bert4keras==0.11.5 with keras==2.3.1, tensorflow==1.15.5, "h5py<3" and
"protobuf<3.21" in Python 3.7. The code for kashgari is not run.
"""

import json
import os
import re
import subprocess
import sys

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "from_transformers.md")
PAIR = re.compile(r"^```py (\S+)\n(.*?)^```\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# As TensorFlow 2 has not changed it yet.
ENVIRONMENT = dict(os.environ, TF_USE_LEGACY_KERAS="1", HF_HUB_OFFLINE="1")
CONFIG = {
    "vocab_size": 1000,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 36,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
}
MODELS = {
    "my_bert": "BertForPreTraining",
    "my_remarks": "BertForSequenceClassification",
    "my_tagger": "BertForTokenClassification",
    "my_answerer": "BertForQuestionAnswering",
}
LABELS = {"my_remarks": ["bad", "good"], "my_tagger": ["B-LOC", "B-PER", "O"]}


def make_models(folder):
    """Writes the models, as folders of transformers, and `released` as the original has it."""
    # The Python of another library has none of these.
    import bert  # noqa: PLC0415
    import convert_checkpoint  # noqa: PLC0415
    import modeling  # noqa: PLC0415
    from bert.weights import saving  # noqa: PLC0415

    config = modeling.BertConfig.from_dict(CONFIG)
    source = os.path.join(folder, "released")
    os.makedirs(source)
    with open(os.path.join(ROOT, "sample", "vocab.txt"), "rb") as file:
        vocabulary = file.read()
    for name, architecture in MODELS.items():
        model = bert.make_model(architecture, config, len(LABELS.get(name, "no")))
        rng = np.random.default_rng(7)
        tensors = {
            v.path: rng.normal(v.path.endswith("gamma"), 0.2, v.shape).astype(np.float32)
            for v in model.weights
        }
        here = source if name == "my_bert" else os.path.join(folder, f"{name}.tf")
        os.makedirs(here, exist_ok=True)
        saving.save_tensors(os.path.join(here, "bert_model.ckpt"), tensors)
        files = {"bert_config.json": config.to_json_string().encode(), "vocab.txt": vocabulary}
        if name in LABELS:
            labels = {"id2label": dict(enumerate(LABELS[name]))}
            files["config.json"] = json.dumps(labels).encode()
        for file_name, content in files.items():
            with open(os.path.join(here, file_name), "wb") as file:
                file.write(content)
        convert_checkpoint.run(
            convert_checkpoint.Settings(
                input=here,
                output=os.path.join(folder, name),
                format="huggingface",
                architecture=architecture,
                do_lower_case=True,
            )
        )


def run_block(code):
    """Runs code; returns the numbers and texts that it sets, by name."""
    variables = {}
    exec(compile(code, PAGE, "exec"), variables)
    found = {}
    for name, value in variables.items():
        is_batch = hasattr(value, "items") and "input_ids" in value
        try:
            numbers = value["input_ids"] if is_batch else value
            found[name] = np.asarray(numbers, np.float64).tolist()
        except (TypeError, ValueError):
            if isinstance(value, (str, list)) and name[0] != "_":
                # NumPy 2 shows the types of its numbers.
                found[name] = re.sub(r"np\.\w+\((\d+)\)", r"\1", str(value))
    return found


def main(folder, *pythons):
    """Prints a line for each variable that both set, and fails where they differ."""
    sys.path[:0] = [ROOT]
    if not os.path.exists(folder):
        make_models(folder)
    # Absolute, but not resolved: that of an environment is a link.
    environments = {
        name: os.path.abspath(path) for name, _, path in (each.partition("=") for each in pythons)
    }
    os.chdir(folder)
    with open(PAGE, encoding="utf-8") as file:
        pairs = PAIR.findall(file.read())
    wrong = []
    for library, theirs, ours in pairs:
        python = environments.get(library, "")
        if not os.path.exists(python):
            print(library, "is left out: there is no Python for it")
            continue
        process = subprocess.run(
            [python, os.path.abspath(__file__), "-"],
            input=theirs.encode(),
            stdout=subprocess.PIPE,
            check=True,
            env=ENVIRONMENT,
        )
        expected = json.loads(process.stdout.decode().splitlines()[-1])
        found = run_block(ours)
        for name in sorted(expected.keys() & found.keys()):
            one, other = expected[name], found[name]
            if isinstance(one, str):
                is_right, shown = one == other, f"{one:.60} {other:.60}"
            else:
                one, other = np.squeeze(one), np.squeeze(other)
                assert one.shape == other.shape, (library, name, one.shape, other.shape)
                difference = np.abs(one - other).max(initial=0)
                is_right, shown = difference <= 1e-5, f"{one.shape} {difference:.1e}"
            print(library, name, shown)
            wrong += [] if is_right else [(library, name)]
    assert not wrong, wrong


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        result = run_block(sys.stdin.read())
        print("\n" + json.dumps(result))
    else:
        paths = [os.path.abspath(sys.argv[1]), *sys.argv[2:]]
        sys.argv = sys.argv[:1]
        main(*paths)

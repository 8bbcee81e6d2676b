import functools
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import read_tensors, run_python
from helpers.tfhub_runs import CONFIG, WORDS, make_settings
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

import bert
import modeling
import run_classifier
import run_classifier_with_tfhub
from bert.weights import checkpoint, saving, tf_hub


def write_graph(folder, signature="tokenization_info", casing=lambda: tf.constant(False)):
    """Writes a `saved_model.pb` as tensorflow_hub does: with two graphs, constants and no init."""
    saved = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    for tags in ([], ["train"]):
        with tf.Graph().as_default() as graph:
            output = tf.identity(casing(), name="casing")
            vocab_file = tf.constant("/gone/vocab.txt", name="vocab_file")
        meta = saved.meta_graphs.add()
        meta.meta_info_def.tags.extend(tags)
        meta.graph_def.CopyFrom(graph.as_graph_def())
        meta.signature_def[signature].outputs["do_lower_case"].name = output.name
        meta.signature_def[signature].outputs["vocab_file"].name = vocab_file.name
        asset = meta_graph_pb2.AssetFileDef(filename="vocab.txt")
        asset.tensor_info.name = vocab_file.name
        meta.collection_def["saved_model_assets"].any_list.value.add().Pack(asset)
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())


@pytest.fixture
def module(tmp_path):
    """A module of a cased BERT, with all of a module's files but those that nobody reads."""
    folder = tmp_path / "module"
    for name in ("assets", "variables"):
        (folder / name).mkdir(parents=True)
    (folder / "assets/vocab.txt").write_text("\n".join(WORDS) + "\n")
    encoder = modeling.BertModel(CONFIG)
    encoder.build(None)
    tensors = {variable.path: variable.numpy() for variable in encoder.weights}
    saving.save_tensors(str(folder / "variables/variables"), tensors)
    write_graph(folder)
    return folder


def weights(folder):
    return read_tensors(folder / "bert_model.ckpt")


@pytest.mark.usefixtures("eager")
def test_module_is_trained_as_its_files_given_one_by_one(tmp_path, module):
    run_classifier_with_tfhub.run(make_settings(tmp_path), module)
    config_file = tmp_path / "bert_config.json"
    config_file.write_text(CONFIG.to_json_string())
    run_classifier.run(
        make_settings(
            tmp_path,
            output_dir=str(tmp_path / "other"),
            vocab_file=str(module / "assets/vocab.txt"),
            do_lower_case=False,
            bert_config_file=str(config_file),
            init_checkpoint=str(module / "variables/variables"),
        )
    )
    ours, others = weights(tmp_path / "out"), weights(tmp_path / "other")
    assert ours.keys() == others.keys()
    for name in ours.keys() - {"output_weights", "output_bias"}:  # The head starts at random.
        np.testing.assert_allclose(ours[name], others[name], rtol=0, atol=1e-3)
    for name in ("vocab.txt", "bert_config.json", "task.json"):
        assert (tmp_path / "out" / name).read_text() == (tmp_path / "other" / name).read_text()


@pytest.mark.usefixtures("eager")
def test_what_init_checkpoint_takes_will_do(tmp_path, module):
    folder = tmp_path / "released"
    folder.mkdir()
    for path in (module / "variables").iterdir():
        path.rename(folder / path.name.replace("variables", "bert_model.ckpt"))
    (module / "assets/vocab.txt").rename(folder / "vocab.txt")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    # Files that are given count where none lies beside the weights.
    (tmp_path / "given.json").write_text(CONFIG.to_json_string())
    given = {"bert_config_file": str(tmp_path / "given.json"), "vocab_file": "/gone/vocab.txt"}
    run_classifier_with_tfhub.run(make_settings(tmp_path, **given), str(folder))
    assert '"do_lower_case": false' in (tmp_path / "out/task.json").read_text()
    assert (tmp_path / "out/vocab.txt").read_text().splitlines() == WORDS


def test_a_module_is_a_checkpoint_with_its_files(module):
    loaded = bert.load(module)
    assert loaded.tokenizer.tokenize("Red red") == ["Red", "red"]
    table = checkpoint.Stored.open(str(module)).read(["bert/embeddings/word_embeddings"])
    found = loaded.model.weights[0].numpy()
    np.testing.assert_array_equal(found, table["bert/embeddings/word_embeddings"])
    with pytest.raises(ValueError, match=r"`do_lower_case` must be False for this model"):
        bert.load(module, do_lower_case=True)
    shutil.rmtree(module / "variables")
    with pytest.raises(ValueError, match=r"be a SavedModel|whole SavedModel"):
        bert.load(module)


def test_shape_and_casing_come_from_the_module_and_its_tokenizer(module):
    assert tf_hub.Module(str(module)).config == CONFIG
    tokenizer = run_classifier_with_tfhub.create_tokenizer_from_hub_module(module)
    assert tokenizer.tokenize("Red red") == ["Red", "red"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda module: write_graph(module, "tokens"), "a signature 'tokenization_info'"),
        (lambda module: (module / "saved_model.pb").write_bytes(b"no"), "is not a SavedModel"),
        (lambda module: (module / "assets/vocab.txt").unlink(), "vocab_file` must be given"),
        (lambda module: (module / "saved_model.pb").unlink(), "bert_hub_module_handle` must"),
        (
            lambda module: saving.save_tensors(
                str(module / "variables/variables"), {"dense/kernel": np.zeros(2, np.float32)}
            ),
            "SavedModel of another kind",
        ),
        (
            lambda module: tf.train.Checkpoint(v=tf.Variable(1.0)).write(
                str(module / "variables/variables")
            ),
            "SavedModel of another kind",
        ),
    ],
)
def test_an_invalid_module_is_refused_before_anything_is_written(tmp_path, module, spoil, message):
    spoil(module)
    settings = make_settings(tmp_path)
    with pytest.raises(ValueError, match=message):
        run_classifier_with_tfhub.run(settings, str(module))
    assert not (tmp_path / "out").exists()


def test_address_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must be a folder.*Fetch its archive"):
        run_classifier_with_tfhub.run(make_settings(tmp_path), "https://tfhub.dev/google/bert/1")


def test_script_needs_its_flag():
    result = run_python("run_classifier_with_tfhub.py", "--do_train", check=False)
    assert result.returncode == 1
    assert "bert_hub_module_handle" in result.stderr


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("given", [None, True])
def test_the_graph_of_a_module_is_never_run(tmp_path, module, given):
    """Whoever made the module may have put anything into its graph."""
    target = tmp_path / "written"

    def write_and_tell():
        with tf.control_dependencies([tf.io.write_file(str(target), "the graph ran")]):
            return tf.equal(tf.constant(1), tf.constant(1))

    write_graph(module, casing=write_and_tell)
    if given is None:
        with pytest.raises(ValueError, match=r"do_lower_case` must be given.*is not run"):
            run_classifier_with_tfhub.run(make_settings(tmp_path), str(module))
    else:
        settings = make_settings(tmp_path, do_eval=False)
        run_classifier_with_tfhub.run(settings, str(module), do_lower_case=given)
        assert '"do_lower_case": true' in (tmp_path / "out/task.json").read_text()
    assert not target.exists()


@pytest.mark.parametrize("casing", [False, True])
def test_a_constant_is_read_after_other_operations(tmp_path, module, casing):
    def constant():
        with tf.control_dependencies([tf.io.write_file(str(tmp_path / "written"), "it ran")]):
            return tf.identity(tf.constant(casing))

    write_graph(module, casing=constant)
    assert tf_hub.Module(str(module), do_lower_case=not casing).do_lower_case is casing
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize("value", [[True, True], 1, "true"])
def test_a_constant_that_is_no_truth_value_needs_an_option(module, value):
    write_graph(module, casing=lambda: tf.constant(value))
    with pytest.raises(ValueError, match="do_lower_case` must be given"):
        _ = tf_hub.Module(str(module)).do_lower_case


def test_a_circle_in_the_graph_ends(module):
    content = saved_model_pb2.SavedModel.FromString((module / "saved_model.pb").read_bytes())
    for meta in content.meta_graphs:
        for node in meta.graph_def.node:
            if node.name == "casing":
                node.input[0] = "casing"
    (module / "saved_model.pb").write_bytes(content.SerializeToString())
    with pytest.raises(ValueError, match="do_lower_case` must be given"):
        _ = tf_hub.Module(str(module)).do_lower_case


def test_of_several_assets_the_one_counts_that_the_graph_names(tmp_path, module):
    (module / "assets/other.txt").write_text("other")
    assert tf_hub.Module(str(module)).vocab_file == str(module / "assets/vocab.txt")
    write_graph(module, "tokens")
    with pytest.raises(ValueError, match="vocab_file` must be given"):
        tf_hub.Module(str(module))
    given = tmp_path / "mine.txt"
    assert tf_hub.Module(str(module), vocab_file=str(given)).vocab_file == str(given)


def test_model_fn_has_the_weights_of_the_module(module):
    model_fn = run_classifier_with_tfhub.model_fn_builder(3, 1e-3, 10, 1, False, module)
    reader = tf.train.load_checkpoint(str(module / "variables/variables"))
    weights = {each.path: each.numpy() for each in model_fn.model.weights}
    assert weights["output_weights"].shape == (3, CONFIG.hidden_size)
    for name, _ in tf.train.list_variables(str(module / "variables/variables")):
        np.testing.assert_array_equal(weights[name], reader.get_tensor(name))


# Parts of the original's names, with those of the Model Garden, in whose order they are replaced.
OF_GARDEN = {
    "bert/embeddings/word_embeddings": "word_embeddings/embeddings",
    "bert/embeddings/position_embeddings": "position_embedding/embeddings",
    "bert/embeddings/token_type_embeddings": "type_embeddings/embeddings",
    "bert/embeddings/LayerNorm": "embeddings/layer_norm",
    "bert/encoder": "transformer",
    "bert/pooler": "pooler_transform",
    "attention/self": "self_attention",
    "attention/output/dense": "self_attention/attention_output",
    "attention/output/LayerNorm": "self_attention_layer_norm",
    "output/LayerNorm": "output_layer_norm",
    "/dense/": "/",
}
# The same for the modules of 2019 for TensorFlow 2.
OF_2019 = {
    "bert/": "bert_model/",
    "embeddings/word_embeddings": "word_embeddings/embeddings",
    "embeddings/position_embeddings": "embedding_postprocessor/position_embeddings",
    "embeddings/token_type_embeddings": "embedding_postprocessor/type_embeddings",
    "embeddings/LayerNorm": "embedding_postprocessor/layer_norm",
    "pooler/dense": "pooler_transform",
    "attention/self": "self_attention",
    "attention/output/dense": "self_attention_output",
    "attention/output/LayerNorm": "self_attention_layer_norm",
    "output/LayerNorm": "output_layer_norm",
    "/dense/": "/",
}


def store_objects(module, tensors, names):
    """Writes variables as modules for TensorFlow 2 have them: objects, with an axis for heads."""
    heads = (CONFIG.num_attention_heads, CONFIG.hidden_size // CONFIG.num_attention_heads)
    kept = tf.Module()
    kept.tracked = []
    for name, values in tensors.items():
        theirs = functools.reduce(lambda found, part: found.replace(*part), names.items(), name)
        shape = values.shape
        if "attention/self" in name:
            shape = (*shape[:-1], *heads)
        elif name.endswith("attention/output/dense/kernel"):
            shape = (*heads, shape[-1])
        kept.tracked.append(tf.Variable(values.reshape(shape), name=theirs))
    shutil.rmtree(module / "variables")
    tf.train.Checkpoint(encoder=kept).write(str(module / "variables" / "variables"))


@pytest.mark.parametrize("is_graph", [False, True])
@pytest.mark.parametrize("names", [None, OF_GARDEN, OF_2019], ids=["TF1", "Garden", "2019"])
def test_create_model_has_the_encoder_of_the_module(module, is_graph, names):
    """As `hub.Module` gave it, under a head that begins at random."""
    examples = {
        "input_ids": np.array([[2, 4, 7, 3], [2, 6, 3, 0]], np.int32),
        "input_mask": np.array([[1, 1, 1, 1], [1, 1, 1, 0]], np.int32),
        "segment_ids": np.zeros((2, 4), np.int32),
    }
    bert = modeling.BertModel(CONFIG)
    bert.build(None)
    tensors = read_tensors(module / "variables/variables")
    for variable in bert.weights:
        variable.assign(tensors[variable.path])
    if names:
        store_objects(module, tensors, names)
    pooled = bert(examples)["pooled_output"].numpy()
    create = run_classifier_with_tfhub.create_model
    if is_graph:
        v1 = tf.compat.v1
        with tf.Graph().as_default(), v1.Session() as session:
            inputs = [tf.constant(each) for each in examples.values()]
            loss, _, logits, _ = create(False, *inputs, tf.constant([0, 2]), 3, str(module))
            session.run(v1.global_variables_initializer())
            variables = {each.name: each for each in v1.trainable_variables()}
            assert sum(name.startswith("module/bert/") for name in variables) == len(bert.weights)
            head = [variables[f"output_{each}:0"] for each in ("weights", "bias")]
            loss, logits, weights, bias = session.run([loss, logits, *head])
    else:
        inputs = modeling.encoder_inputs()
        _, _, logits, _ = create(False, *inputs.values(), None, 3, module)
        model = keras.Model(inputs, logits)
        weights, bias = (each.numpy() for each in model.weights[-2:])
        logits = model(examples).numpy()
        loss = -tf.nn.log_softmax(logits).numpy()[[0, 1], [0, 2]].mean()
    np.testing.assert_allclose(logits, pooled @ weights.T + bias, atol=1e-5)
    assert loss == pytest.approx(-tf.nn.log_softmax(logits).numpy()[[0, 1], [0, 2]].mean())

"""The main scripts use no call that only some systems have."""

from conftest import ROOT, run_python

# What Windows lacks. Python's own modules, which use some of it on Linux, are imported before.
CODE = """
import asyncio, concurrent.futures, multiprocessing.pool, multiprocessing.popen_spawn_posix
import json, os, signal, socket, subprocess, sys, tempfile

multiprocessing.set_start_method("spawn")
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "pthread_sigmask", "pause", "setitimer"):
    delattr(signal, name)
for name in (
    *("getuid", "geteuid", "getgid", "setsid", "killpg", "fchmod", "chown", "mkfifo"),
    *("sched_getaffinity", "sysconf", "getloadavg", "O_DIRECTORY", "O_NOFOLLOW"),
):
    delattr(os, name)

def main():
    import create_pretraining_data, create_vocab, run_classifier, run_pretraining
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    vocab = os.path.abspath("vocab.txt")
    create_vocab.run(create_vocab.Settings(
        input_file=sys.argv[1], output_file=vocab, vocab_size=400, num_processes=2))
    lengths = {"max_seq_length": 16, "max_predictions_per_seq": 3}
    for streaming in (False, True):
        create_pretraining_data.run(create_pretraining_data.Settings(
            input_file=sys.argv[1], output_file=f"records{streaming}", vocab_file=vocab,
            dupe_factor=1, streaming=streaming, **lengths))
    shape = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    with open("config.json", "w") as file:
        json.dump({**shape, "vocab_size": 400, "max_position_embeddings": 16}, file)
    run_pretraining.run(run_pretraining.Settings(
        input_file="recordsTrue", bert_config_file="config.json", output_dir="bert", do_train=True,
        num_train_steps=2, **lengths))
    scores = run_classifier.run(run_classifier.Settings(
        train_file=sys.argv[2], init_checkpoint="bert", vocab_file=vocab, output_dir="classifier",
        do_train=True, do_eval=True, max_seq_length=16, num_train_epochs=0.2))
    print(sorted(scores))

if __name__ == "__main__":
    main()
"""


def test_the_main_scripts_run_where_calls_of_posix_are_missing(tmp_path):
    (tmp_path / "program.py").write_text(CODE)
    samples = (ROOT / "sample_text.txt", ROOT / "sample" / "remarks" / "train.tsv")
    env = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    result = run_python("program.py", *map(str, samples), folder=tmp_path, **env)
    assert "'accuracy'" in result.stdout.splitlines()[-1]
    assert (tmp_path / "classifier" / "report.html").exists()

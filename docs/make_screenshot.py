"""Makes the picture of the README: report.html of a classifier that is trained on the sample.

    python docs/make_screenshot.py [--output_file=docs/report.png] [--dark]

Takes a minute, and needs Chromium: `apt-get install chromium`, or any of its names below.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# No window, no first steps, and no requests of the browser's own.
OPTIONS = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
OPTIONS += " --disable-component-update --disable-sync --hide-scrollbars"
# With this seed, a model that begins at random learns the sample.
TRAINING = "--task_name=custom --do_train --do_eval --max_seq_length=64 --train_batch_size=16"
TRAINING += " --learning_rate=5e-4 --num_train_epochs=5 --save_checkpoints_steps=5 --seed=12346"


def train(folder: str) -> Path:
    """Trains on the sample; returns the page."""
    sample = ROOT / "sample"
    subprocess.run(
        [
            *(sys.executable, "run_classifier.py", *TRAINING.split()),
            f"--data_dir={sample / 'remarks'}",
            f"--vocab_file={sample / 'vocab.txt'}",
            f"--bert_config_file={sample / 'bert_config.json'}",
            f"--output_dir={folder}",
        ],
        cwd=ROOT,
        check=True,
    )
    return Path(folder) / "report.html"


def photograph(page: Path, picture: Path, size: str, *, is_dark: bool) -> None:
    """Writes a picture of the top of a page, `size` being its width and height in pixels."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"One of {', '.join(BROWSERS)} must be installed. None is found.")
    with tempfile.TemporaryDirectory() as profile:
        dark = ["--blink-settings=preferredColorScheme=0"] * is_dark
        taken = [f"--user-data-dir={profile}", f"--window-size={size}", f"--screenshot={picture}"]
        command = [browser, *OPTIONS.split(), *dark, *taken, page.as_uri()]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def main(options: argparse.Namespace) -> None:
    """Trains and takes the picture."""
    picture = Path(options.output_file).resolve()
    with tempfile.TemporaryDirectory() as folder:
        page = train(str(Path(folder, "my_remarks")))
        photograph(page, picture, options.size, is_dark=options.dark)
    print(f"{picture}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_file", default=str(ROOT / "docs/report.png"), help="A PNG.")
    parser.add_argument("--size", default="960,1480", help="Width and height in pixels.")
    parser.add_argument("--dark", action="store_true", help="As on a dark desktop.")
    main(parser.parse_args())

"""Draws docs/architecture.svg: the layers of the project, and the way of a run through them.

python docs/make_architecture.py
"""

from pathlib import Path

LAYERS = (
    ("scripts", "run_classifier.py, run_squad.py, …"),
    ("commands", "flags → groups of options; the log, help, --check"),
    ("serving · scale · inspection · original", ""),
    ("runs", "recipe → plan → run → result; identity, search"),
    ("models · reports", "any model opened; report pages"),
    ("tasks · pretraining", "data, head, answers, export of each task"),
    ("export", "SavedModel, LiteRT, ONNX"),
    ("training", "loop, observers, batches, devices, workers"),
    ("network · weights", "heads, kernels; checkpoints, folders"),
    ("modeling · optimization · tokenization", "the original's library"),
    ("text · files · options", "vocabularies; what is on disk; options and errors"),
)
# What a run does in the layer of a row.
WAY = (
    (0, "a command line"),
    (1, "1  flags become groups of options"),
    (3, "2  plan(recipe) opens and verifies, writes nothing"),
    (8, "3  the model and its weights are opened"),
    (5, "4  data are read, labels and head are found"),
    (7, "6  the loop takes steps and calls the observers"),
    (3, "5  run(plan) locks the folder, is alone in writing"),
)
ROW, LEFT, WIDTH, RIGHT = 44, 20, 540, 590


def draw() -> str:
    """Returns the picture as SVG."""
    height = ROW * len(LAYERS) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 {height}" '
        'font-family="sans-serif" role="img" aria-label="Layers, and the way of a run">',
        f'<rect width="960" height="{height}" fill="#ffffff"/>',
    ]
    for number, (name, text) in enumerate(LAYERS):
        top = 20 + ROW * number
        shade = f"#{250 - 5 * number:02x}{252 - 4 * number:02x}ff"
        parts.append(
            f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{ROW - 6}" rx="4" '
            f'fill="{shade}" stroke="#8fa3bf"/>'
        )
        parts.append(
            f'<text x="{LEFT + 12}" y="{top + 24}" font-size="14" font-weight="600">{name}</text>'
        )
        parts.append(
            f'<text x="{LEFT + WIDTH - 12}" y="{top + 24}" font-size="12" text-anchor="end" '
            f'fill="#445">{text}</text>'
        )
    seen: set[int] = set()
    for row, text in WAY:
        shift = 16 if row in seen else 0
        seen.add(row)
        top = 20 + ROW * row + 15 + shift
        parts.append(f'<path d="M{LEFT + WIDTH} {top} H{RIGHT - 4}" stroke="#b3541e"/>')
        parts.append(f'<text x="{RIGHT}" y="{top + 4}" font-size="13">{text}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("architecture.svg").write_text(draw(), encoding="utf-8")

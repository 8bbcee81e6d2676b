"""Tasks that tests open from the flat options of a script."""

from bert.runs import opening


def open_task(script, settings, config, tokenizer):
    return opening.open_task(script.make_recipe(settings), config, tokenizer)

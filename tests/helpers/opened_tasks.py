"""Tasks that tests open from the flat options of a script."""


def open_task(script, settings, config, tokenizer):
    return script.make_recipe(settings).open_task(config, tokenizer)
